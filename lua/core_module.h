// The Lua module mslua.core; lua/mslua/core_api.lua is its contract.
#pragma once

struct lua_State;

namespace mslua {

// What `require "mslua.core"` runs.
int OpenCoreModule(lua_State* L);

}  // namespace mslua
