// Attributes of operators between Lua, where axes count from 1, and their definitions, where they count from 0.
#pragma once

#include "core/op/op_def.h"
#include "lua/session.h"
#include "luajit-2.1/lua.hpp"

namespace mslua {

// The kind that an attribute has for Lua.
AttrKind KindForLua(const AttrDef& attr);
// The attribute at `index` as the definition wants it.
StatusOr<AttrValue> ReadAttr(lua_State* L, int index, const OpDef& op, const AttrDef& attr);
// Pushes an attribute as Lua counts.
void PushAttr(lua_State* L, AttrKind kind, const AttrValue& value);

// Named attributes from the table at `index`; names that begin with '_' are the compiler's own, of any type.
Status ReadNamedAttrs(lua_State* L, int index, const OpDef& op, Attrs* attrs);
// Attributes by position at [first, last], then a table of named ones. nil leaves one out.
Status ReadAttrs(lua_State* L, const OpDef& op, int first, int last, Attrs* attrs);

}  // namespace mslua
