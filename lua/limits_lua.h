// The limits of a number as fields of a Lua table.
#pragma once

#include <utility>

#include "core/fields/limits.h"
#include "luajit-2.1/lua.hpp"

namespace mslua {

// Sets `min`, `above`, `max` and `below`, those that there are, in the table at the top of the stack.
inline void SetLimits(lua_State* L, const Limits& limits) {
  for (const auto& [key, limit] :
       {std::pair("min", limits.min), {"above", limits.above}, {"max", limits.max}, {"below", limits.below}}) {
    if (!limit) continue;
    lua_pushnumber(L, *limit);
    lua_setfield(L, -2, key);
  }
}

}  // namespace mslua
