#include "core/op/registry.h"

#include <algorithm>

#include "core/op/device_text.h"
#include "core/op/elementwise.h"

namespace mslua {
namespace {

// The reference kernel of an elementwise operator: its formula, a tile at a time, in the compute type of its inputs and
// outputs (ElementwiseComputeType).
ReferenceKernel FormulaKernel(const OpDef& op) {
  const OpDef copy = op;
  return [copy](const OpCall& call) -> Status {
    ASSIGN_OR_RETURN(const ScalarProgram program, FormulaProgram(copy, call.attrs));
    return EvaluateElementwise(program, call.inputs, call.outputs);
  };
}

DeviceFn FormulaOnDevice(const OpDef& op) {
  const OpDef copy = op;
  return [copy](const OpSpec& spec) -> StatusOr<DeviceProgram> {
    ASSIGN_OR_RETURN(const ScalarProgram program, FormulaProgram(copy, spec.attrs));
    return DeviceMap(program, spec.inputs, spec.outputs);
  };
}

}  // namespace

OpRegistry::OpRegistry(std::vector<OpDef> ops) : ops_(std::move(ops)) {
  std::sort(ops_.begin(), ops_.end(), [](const OpDef& a, const OpDef& b) { return a.name < b.name; });
  for (OpDef& op : ops_) {
    if (!op.formula.empty()) op.elementwise = true;
    if (!op.formula.empty() && !op.reference) op.reference = FormulaKernel(op);
    if (!op.formula.empty() && !op.device) op.device = FormulaOnDevice(op);
  }
}

const OpDef* OpRegistry::Find(absl::string_view name) const {
  const auto it = std::lower_bound(ops_.begin(), ops_.end(), name,
                                   [](const OpDef& op, absl::string_view n) { return op.name < n; });
  return it != ops_.end() && it->name == name ? &*it : nullptr;
}

}  // namespace mslua
