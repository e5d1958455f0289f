// What Lua calls while a graph is traced, and the kind of traced values.
#pragma once

struct lua_State;

namespace mslua {

// Entries of the module: push_scope, ..., print, and the Value kind.
void OpenTraces(lua_State* L);

}  // namespace mslua
