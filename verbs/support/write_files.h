// Writing the files of `mslua init` and `mslua editor`.
#pragma once

#include <map>
#include <string>

#include "core/base/status.h"

namespace mslua {

// Names within a folder, "data.lua", and their texts.
using Files = std::map<std::string, std::string>;

// The folder that an argument names, "circles" of "circles/".
std::string FolderOf(std::string argument);

// Makes `folder` and writes the files there, in the place of files of these names.
Status WriteFiles(const std::string& folder, const Files& files);

// AlreadyExists, which names the first of the files that `folder` has already; OK where there is none.
Status NoneIsThere(const std::string& folder, const Files& files);

}  // namespace mslua
