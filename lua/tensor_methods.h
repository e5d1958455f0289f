// What tensors, traced values and parameters answer to in Lua: fields, methods, subscripts, arithmetic.
#pragma once

#include "core/op/op_def.h"
#include "lua/session.h"
#include "luajit-2.1/lua.hpp"

namespace mslua {

// Pushes shape, dtype, size, or the method of core.methods called that; nil when there is neither.
StatusOr<int> GetTensorField(lua_State* L, const TensorType& type);
// object[i]: the operand at 1 by the subscript at 2.
StatusOr<int> IndexOperand(lua_State* L, Session& session);
// Arithmetic, comparison and length for the metatable on the top of the stack.
void SetOperandMetamethods(lua_State* L);

// Entries of the module: methods, shape_metatable.
void OpenTensorMethods(lua_State* L);

}  // namespace mslua
