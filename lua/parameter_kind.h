// Parameters in Lua: handles to named values of the rank's store.
#pragma once

struct lua_State;

namespace mslua {

// Entries of the module: core.parameter, core.state, and the kind's metatable.
void OpenParameters(lua_State* L);

}  // namespace mslua
