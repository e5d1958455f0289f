// The process that runs an attached person's Lua beside a rank (attach/server/lua_helper.h).
#pragma once

#include <optional>

namespace mslua {

// Where these are the arguments of such a process (attach/server/lua_helper.h): serves the rank at the other end of
// descriptor 3 until that goes, and gives the exit code. Else nothing.
std::optional<int> RunSessionLua(int argc, char** argv);

}  // namespace mslua
