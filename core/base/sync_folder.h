// Forcing folders to disk, and the errors of writing. Of this folder alone: others make folders by MakeFolders and
// files by AtomicFile.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "core/base/status.h"

namespace mslua {

// Forces the entries of a folder to disk, so that what was made or renamed in it survives a power failure. Some file
// systems cannot sync folders, and some folders cannot be opened: then nothing is done.
Status SyncFolder(const std::string& folder);
// "a/b" of "a/b/c", "." of "c".
std::string ParentOf(const std::string& path);

// The error of the system call that has just failed to write, make, rename or remove the file or folder `path`: "DOING
// PATH: cause" of errno. It has the exit code kExitStorage, so that a full disk has one exit code in all verbs.
Status WriteError(absl::string_view doing, absl::string_view path);

}  // namespace mslua
