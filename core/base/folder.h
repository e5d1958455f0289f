// Making folders.
#pragma once

#include <string>

#include "core/base/status.h"

namespace mslua {

// Makes the folder and those above it (mkdir -p); one that is there is fine. Errors name the folder that cannot be
// made.
Status MakeFolders(const std::string& path);

}  // namespace mslua
