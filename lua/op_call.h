// The one way from Lua to an operator: arguments by its definition, then a node of the trace or an eager run.
#pragma once

#include <vector>

#include "core/op/op_def.h"
#include "lua/session.h"
#include "luajit-2.1/lua.hpp"

namespace mslua {

// What users call the operator: its class, else its name.
const std::string& UserName(const OpDef& op);

// Applies `op` to the operands at these stack indices (Tensor, Value, Parameter, number, boolean); attributes are
// the operators' own (axes from 0). Pushes each output and gives their number.
StatusOr<int> Apply(lua_State* L, Session& session, const OpDef& op, const std::vector<int>& operands, Attrs attrs);
// The same by name; an error when this build has no such operator.
StatusOr<int> Apply(lua_State* L, Session& session, absl::string_view op, const std::vector<int>& operands,
                    Attrs attrs);

// An attribute of Lua (axes from 1) at `index` as the definition wants it.
StatusOr<AttrValue> ReadAttr(lua_State* L, int index, const OpDef& op, const AttrDef& attr);
// Pushes an attribute as Lua counts.
void PushAttr(lua_State* L, AttrKind kind, const AttrValue& value);

// Pushes shape, dtype, size, or the method of core.methods called that; nil when there is neither.
StatusOr<int> GetTensorField(lua_State* L, const TensorType& type);
// object[i]: the operand at 1 by the subscript at 2.
StatusOr<int> IndexOperand(lua_State* L, Session& session);
// Arithmetic, comparison and length for the metatable on the top of the stack.
void SetOperandMetamethods(lua_State* L);

// Entries of the module: op, functions, bind_attrs, ops, methods.
void OpenOperators(lua_State* L);

}  // namespace mslua
