#include "core/base/input_file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"

namespace mslua {

StatusOr<std::unique_ptr<InputFile>> InputFile::Open(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);  // a FIFO must not block
  if (fd < 0) return FileError("cannot open", path);
  struct stat st;
  if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
    close(fd);
    return absl::InvalidArgumentError(absl::StrCat(path, " is not a regular file"));
  }
  return std::unique_ptr<InputFile>(new InputFile(path, fd, st.st_size));
}

InputFile::~InputFile() { close(fd_); }

Status InputFile::Read(int64_t offset, int64_t size, void* out) const {
  char* p = static_cast<char*>(out);
  while (size > 0) {
    const ssize_t got = pread(fd_, p, static_cast<size_t>(size), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return FileError("cannot read", path_);
    if (got == 0) {
      return absl::DataLossError(absl::StrCat(path_, " ends at byte ", offset, ", ", size, " bytes early"));
    }
    p += got;
    offset += got;
    size -= got;
  }
  return absl::OkStatus();
}

void InputFile::ReadAhead(int64_t offset, int64_t size) const {
  posix_fadvise(fd_, offset, size, POSIX_FADV_WILLNEED);  // a wish: without it Read waits longer
}

StatusOr<std::string> ReadFile(const std::string& path, int64_t limit) {
  ASSIGN_OR_RETURN(const auto file, InputFile::Open(path));
  if (file->size() > limit) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " has ", file->size(), " bytes, at most ", limit, " are expected"));
  }
  std::string contents(static_cast<size_t>(file->size()), '\0');
  RETURN_IF_ERROR(file->Read(0, file->size(), contents.data()));
  return contents;
}

}  // namespace mslua
