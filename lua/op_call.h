// The one way from Lua to an operator: arguments by its definition, then a node of the trace or an eager run.
#pragma once

#include <vector>

#include "absl/types/optional.h"
#include "core/step/operator_call.h"
#include "lua/session.h"
#include "luajit-2.1/lua.hpp"

namespace mslua {

// Applies `op` to the operands at these stack indices (Tensor, Value, Parameter, number, boolean); attributes are
// the operators' own (axes from 0). Pushes each output and gives their number.
StatusOr<int> Apply(lua_State* L, Session& session, const OpDef& op, const std::vector<int>& operands, Attrs attrs);
// The same by name; an error when this build has no such operator.
StatusOr<int> Apply(lua_State* L, Session& session, absl::string_view op, const std::vector<int>& operands,
                    Attrs attrs);

// The same with the arguments at [first, last]: operands, then attributes. `attrs` holds those that are known already.
StatusOr<int> CallOperator(lua_State* L, Session& session, const OpDef& op, int first, int last, Attrs attrs);

// The type of the operand at `index`; none when it is no tensor of any kind.
StatusOr<absl::optional<TensorType>> OperandType(lua_State* L, const Session& session, int index);

}  // namespace mslua
