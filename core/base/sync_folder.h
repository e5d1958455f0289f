// Forcing folders to disk. Of this folder alone: others make folders by MakeFolders and files by AtomicFile.
#pragma once

#include <string>

#include "core/base/status.h"

namespace mslua {

// Forces the entries of a folder to disk, so that what was made or renamed in it survives a power failure. Some file
// systems cannot sync folders, and some folders cannot be opened: then nothing is done.
Status SyncFolder(const std::string& folder);
// "a/b" of "a/b/c", "." of "c".
std::string ParentOf(const std::string& path);

}  // namespace mslua
