// What the end of a process says of the report of its crash (launch/crash_file.h).
#pragma once

#include <string>

namespace mslua {

// "; backtrace in PATH" when the process that is called `who` ("pid 812, host a") has left its report there; else
// empty.
std::string CrashNote(const std::string& path, const std::string& who);

}  // namespace mslua
