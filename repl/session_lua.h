// The process that runs an attached person's Lua beside a rank (attach/server/lua_helper.h).
#pragma once

namespace mslua {

// Serves the rank at the other end of descriptor 3 until that goes. The exit code.
int RunSessionLua();

}  // namespace mslua
