// Files that a connection's security depends on. The mode is that of the opened file, not of its name.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "core/base/status.h"

namespace mslua {

// The contents of a key, a password or another secret: a regular file of this user that nobody else can read (mode
// 0600), or root's and at most readable by a group. `what` begins messages ("server_cert_path"). At most 1 MiB.
// NotFound; PermissionDenied: others can read it; InvalidArgument: not a regular file, or too large.
StatusOr<std::string> ReadSecretFile(absl::string_view what, const std::string& path);
// The contents of a file that only this user or root can change. The same errors.
StatusOr<std::string> ReadTrustedFile(absl::string_view what, const std::string& path);

}  // namespace mslua
