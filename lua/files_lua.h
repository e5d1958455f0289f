// Writing files: core.write_file, open_files and close_files.
#pragma once

#include "lua/session.h"

namespace mslua {

void OpenFiles(lua_State* L);

}  // namespace mslua
