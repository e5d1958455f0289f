// The Lua module mslua.core; lua/mslua/core_api.lua is its contract.
#pragma once

struct lua_State;

namespace mslua {

// What `require "mslua.core"` runs.
int OpenCoreModule(lua_State* L);

// The Lua of this program, with its version.
const char* LuaVersion();

}  // namespace mslua
