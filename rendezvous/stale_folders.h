// Folders of sockets whose processes were killed before they could remove them.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "core/base/status.h"

namespace mslua {

// MakeSocketFolder, and HoldFolder of it; removes the stale folders beside it first.
StatusOr<std::string> MakeHeldFolder(absl::string_view job);

// Marks the folder as in use by this process (a shared lock that ends with the process) until ReleaseFolder(). False:
// it is gone, since RemoveStaleFolders() took it for one of a process that has ended.
bool HoldFolder(const std::string& folder);
void ReleaseFolder(const std::string& folder);

// Whether the open folder is still the one of that name.
bool IsThere(int fd, const std::string& folder);

// Removes the folder that is open as `fd`, with the sockets and files in it. False: a process holds it, or it is no
// longer the one of that name.
bool RemoveStaleFolder(const std::string& folder, int fd);

// Removes the folders in `root` that no process holds, with the sockets and files in them, and returns how many.
int RemoveStaleFolders(const std::string& root);

}  // namespace mslua
