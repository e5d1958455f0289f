#include "core/base/sync_folder.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "core/base/exit_code.h"

namespace mslua {

std::string ParentOf(const std::string& path) {
  const size_t name = path.find_last_not_of('/');
  const size_t slash = name == std::string::npos ? 0 : path.rfind('/', name);
  if (slash == std::string::npos) return ".";
  const size_t end = path.find_last_not_of('/', slash);
  return end == std::string::npos ? "/" : path.substr(0, end + 1);
}

Status WriteError(absl::string_view doing, absl::string_view path) {
  return WithExitCode(FileError(doing, path), kExitStorage);
}

Status SyncFolder(const std::string& folder) {
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0 && errno == EACCES) return absl::OkStatus();
  if (fd < 0) return WriteError("cannot open the folder", folder);
  Status status;
  if (fsync(fd) != 0 && errno != EINVAL && errno != ENOTSUP && errno != EROFS) {
    status = WriteError("cannot sync the folder", folder);
  }
  close(fd);
  return status;
}

}  // namespace mslua
