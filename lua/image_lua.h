// Pictures in Lua: core.write_png.
#pragma once

#include "luajit-2.1/lua.hpp"

namespace mslua {

// Entries of the module.
void OpenImages(lua_State* L);

}  // namespace mslua
