// core.export_onnx.
#pragma once

#include "luajit-2.1/lua.hpp"

namespace mslua {

// Entries of the module.
void OpenOnnx(lua_State* L);

}  // namespace mslua
