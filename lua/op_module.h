// The operators in the module mslua.core.
#pragma once

#include "luajit-2.1/lua.hpp"

namespace mslua {

// Entries of the module: op, functions, bind_attrs, ops.
void OpenOperators(lua_State* L);

}  // namespace mslua
