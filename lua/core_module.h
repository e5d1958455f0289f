// The Lua module mslua.core; lua/mslua/core_api.lua is its contract.
#pragma once

struct lua_State;

namespace mslua {

inline constexpr char kVersion[] = "0.1.0";

// What `require "mslua.core"` runs.
int OpenCoreModule(lua_State* L);

}  // namespace mslua
