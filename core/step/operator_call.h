// A call of an operator in a trace: mixed precision, broadcasting, and what users say of its sharding.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/step/operator_info.h"
#include "core/step/rank_state.h"
#include "core/step/trace.h"

namespace mslua {

// An error where operands that must be of one element type are not, with their own shapes. type_at(i) is the type of
// operand i of n, is_parameter(i) whether it is a parameter: the message says to convert the other one.
Status CheckElementTypes(const OpDef& op, size_t n, const std::function<TensorType(size_t)>& type_at,
                         const std::function<bool(size_t)>& is_parameter);

// Emits `op` on values of the builder; operands are broadcast.
std::vector<Value> EmitOperator(GraphBuilder& g, const OpDef& op, const std::vector<Value>& values, Attrs attrs);

// Emits a user's call into the trace, in the types of its mixed precision. `attrs` may have the user's strategies,
// which hold where the rank has a view. `numbers` says which operands are numbers of the recipe.
StatusOr<std::vector<Value>> CallOperator(RankState& state, Trace& trace, const OpDef& op, std::vector<Value> values,
                                          const std::vector<bool>& numbers, Attrs attrs);

}  // namespace mslua
