// What calls of operators need to know of their definitions.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "core/base/status.h"
#include "core/op/op_def.h"

namespace mslua {

// What users call the operator: its class, else its name.
const std::string& UserName(const OpDef& op);
// How many inputs users give: random operators end in an input `step`, which is not theirs.
size_t UserInputs(const OpDef& op);
// The operator of that name; an error when this build has none.
StatusOr<const OpDef*> RequireOp(absl::string_view name);
// "MatMul: what"
Status OpError(const OpDef& op, absl::string_view what);
// The definition of operand `i`, of which the last may stand for several.
const InputDef& InputAt(const OpDef& op, size_t i);
// Whether operands of other shapes are broadcast.
bool Broadcasts(const OpDef& op);

}  // namespace mslua
