#include "core/ops/declare/labelled_rows.h"

#include <string>
#include <vector>

#include "core/kernels/simd/softmax.h"

namespace mslua {
namespace {

// The operand whose elements name columns, and the name that is right too; operand -1: there is none.
struct Names {
  int32_t operand = -1;
  int64_t ignored = -1;
};
Names NamesOf(const RowForm& form) {
  Names names;
  for (const RowRead& r : form.program.reads) {
    if (r.kind == RowRead::kIsColumn) names.operand = r.of;
    if (r.kind == RowRead::kDiffers) names.ignored = r.number;
  }
  return names;
}

}  // namespace

void ComputesLabelledRows(OpDef& op) {
  ComputesRows(op);
  const std::string name = op.name;
  op.Reference([name](const OpCall& call) -> Status {
    ASSIGN_OR_RETURN(const RowForm form, RowFormOf(name, call));
    const Names names = NamesOf(form);
    if (names.operand >= 0) {
      const TensorView& v = call.inputs[static_cast<size_t>(names.operand)];
      RETURN_IF_ERROR(CheckLabels(v.type.dtype, v.data, v.type.elements(), form.length(), names.ignored));
    }
    return EvaluateRows(form, call.inputs, call.outputs);
  });
  op.device_fault = [name](const OpSpec& spec, const DeviceFault& fault) -> Status {
    ASSIGN_OR_RETURN(const RowForm form, FindRowForm(name)(spec));
    const TensorType& named = spec.inputs[static_cast<size_t>(NamesOf(form).operand)];
    return WrongLabel(fault.at, named.elements(), fault.value, form.length());
  };
}

}  // namespace mslua
