// The secret of a job whose ranks are on several hosts: a file that each of its processes can read and nobody else.
#pragma once

#include <string>

#include "core/base/status.h"

namespace mslua {

// Names the file.
inline constexpr char kJobSecretVariable[] = "MSLUA_JOB_SECRET_FILE";

// The file's contents without white space at the end. The file is this user's and no other's (mode 0600), or root's and
// at most readable by a group. NotFound: there is none. PermissionDenied: others can read or change it.
// InvalidArgument: under 16 bytes, over 4096, or not a regular file.
StatusOr<std::string> ReadJobSecret(const std::string& path);

// The same, of a file that is made with a random secret when there is none. `*made`: whether this call made it.
StatusOr<std::string> MakeJobSecret(const std::string& path, bool* made);

// A random secret, as MakeJobSecret makes it, and a new file with it. AlreadyExists: there is one.
StatusOr<std::string> NewJobSecret();
Status WriteJobSecret(const std::string& path, const std::string& secret);

}  // namespace mslua
