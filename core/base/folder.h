// Whether files and folders are there, making folders, and where a user's cache is.
#pragma once

#include <string>

#include "core/base/status.h"

namespace mslua {

// Whether `path` is a regular file, or a folder; links are followed. False where it cannot be looked at.
bool IsFile(const std::string& path);
bool IsFolder(const std::string& path);

// Makes the folder and those above it (mkdir -p); one that is there is fine. Errors name the folder that cannot be
// made.
Status MakeFolders(const std::string& path);

// $XDG_CACHE_HOME/mslua, else ~/.cache/mslua; empty where there is no home. It need not be there.
std::string UserCacheFolder();

}  // namespace mslua
