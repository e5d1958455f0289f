#include "tests/emulated_device/device_calls.h"

#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/op/registry.h"

namespace mslua::testing {
namespace {

// Whether a node of the operator is launched at all.
bool IsLaunched(const OpDef& op) { return !op.body && !op.view && op.name != "input" && op.name != "constant"; }

constexpr int64_t kLarge[] = {16};
constexpr absl::Span<const int64_t> kLarger = kLarge, kAsItIs;

}  // namespace

std::vector<DeviceCall> AllDeviceCalls(std::set<std::string>* missing, int* operators) {
  const char* const only = std::getenv("MSLUA_OPERATOR");
  std::vector<DeviceCall> calls;
  for (const OpDef& op : Operators().all()) {
    if (!IsLaunched(op) || (only != nullptr && op.name != only)) continue;
    ++*operators;
    if (!op.device) {
      missing->insert(op.name);
      continue;
    }
    for (const Sample& sample : op.samples) {
      for (int t = 0; t < kNumDTypes; ++t) {
        const auto dtype = static_cast<DType>(t);
        for (Call& call : SampleCalls(op, sample, dtype, dtype == DType::kF32 ? kLarger : kAsItIs)) {
          DeviceCall c;
          c.inputs = MakeInputs(call, sample);
          c.call = std::move(call);
          std::vector<std::string> types;
          for (const TensorType& x : c.call.inputs) types.push_back(ToString(x));
          c.name = absl::StrCat(op.name, "(", absl::StrJoin(types, ", "), ")");
          calls.push_back(std::move(c));
        }
      }
    }
  }
  return calls;
}

}  // namespace mslua::testing
