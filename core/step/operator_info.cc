#include "core/step/operator_info.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "core/base/text.h"
#include "core/op/registry.h"

namespace mslua {

const std::string& UserName(const OpDef& op) { return op.class_name.empty() ? op.name : op.class_name; }

size_t UserInputs(const OpDef& op) { return op.inputs.size() - (op.random ? 1 : 0); }

StatusOr<const OpDef*> RequireOp(absl::string_view name) {
  if (const OpDef* op = Operators().Find(name)) return op;
  std::vector<std::string> names;
  for (const OpDef& op : Operators().all()) names.push_back(op.name);
  return absl::NotFoundError(
      absl::StrCat("this build has no operator '", name, "'", DidYouMean(std::string(name), names)));
}

Status OpError(const OpDef& op, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(UserName(op), ": ", what));
}

const InputDef& InputAt(const OpDef& op, size_t i) { return op.inputs[std::min(i, op.inputs.size() - 1)]; }

bool Broadcasts(const OpDef& op) { return !op.formula.empty() && op.inputs.size() > 1; }

}  // namespace mslua
