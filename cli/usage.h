// How help and the reference write a flag.
#pragma once

#include <string>

#include "cli/flags.h"

namespace mslua::cli {

// "-n N", "--resume[=last|best|PATH]", "--json"; "--no-attach" for a switch that is on by default.
std::string FlagUsage(const FlagDef& flag);

}  // namespace mslua::cli
