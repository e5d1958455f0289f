#include "core/base/folder.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "core/base/exit_code.h"
#include "core/base/sync_folder.h"

namespace mslua {

bool IsFile(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

bool IsFolder(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

namespace {

// A path below a file is the caller's mistake, whose exit code is the verb's; all else is that of files.
Status CannotMake(const std::string& folder) {
  const int code = errno;
  const Status status =
      absl::InvalidArgumentError(absl::StrCat("cannot make the folder ", folder, ": ", std::strerror(code)));
  return code == ENOTDIR ? status : WithExitCode(status, kExitStorage);
}

}  // namespace

Status MakeFolders(const std::string& path) {
  for (size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
    const std::string part = path.substr(0, end);
    if (!IsFolder(part)) {
      if (mkdir(part.c_str(), 0777) == 0)
        RETURN_IF_ERROR(SyncFolder(ParentOf(part)));
      else if (errno != EEXIST)
        return CannotMake(part);
    }
    if (end == std::string::npos) break;
  }
  if (!IsFolder(path)) return absl::InvalidArgumentError(absl::StrCat(path, " is a file, not a folder"));
  return SyncFolder(ParentOf(path));  // who made it may have been killed before
}

std::string UserCacheFolder() {
  const char* const cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && cache[0] == '/') return absl::StrCat(cache, "/mslua");
  const char* const home = std::getenv("HOME");
  if (home != nullptr && home[0] == '/') return absl::StrCat(home, "/.cache/mslua");
  return "";
}

}  // namespace mslua
