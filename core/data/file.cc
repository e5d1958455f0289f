#include "core/data/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace mslua::data {
namespace {

Status Errno(absl::string_view doing, const std::string& path) {
  const int code = errno;
  return absl::ErrnoToStatus(code, absl::StrCat(doing, " ", path));
}

}  // namespace

bool IsFile(const std::string& path) {
  struct stat st;
  return stat(path.c_str(), &st) == 0 && S_ISREG(st.st_mode);
}

bool IsFolder(const std::string& path) {
  struct stat st;
  return stat(path.c_str(), &st) == 0 && S_ISDIR(st.st_mode);
}

StatusOr<std::vector<std::string>> ListFolder(const std::string& path) {
  DIR* dir = opendir(path.c_str());
  if (dir == nullptr) return Errno("cannot list", path);
  std::vector<std::string> names;
  while (const dirent* entry = readdir(dir)) {
    if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
  }
  closedir(dir);
  std::sort(names.begin(), names.end());
  return names;
}

StatusOr<std::unique_ptr<InputFile>> InputFile::Open(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return Errno("cannot open", path);
  struct stat st;
  if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
    close(fd);
    return absl::InvalidArgumentError(absl::StrCat(path, " is not a regular file"));
  }
  return std::unique_ptr<InputFile>(new InputFile(path, fd, st.st_size));
}

InputFile::~InputFile() { close(fd_); }

Status InputFile::Read(int64_t offset, int64_t n, void* out) const {
  auto* p = static_cast<uint8_t*>(out);
  while (n > 0) {
    const ssize_t got = pread(fd_, p, static_cast<size_t>(n), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Errno("cannot read", path_);
    if (got == 0) {
      return absl::DataLossError(absl::StrCat(path_, " ends at byte ", offset, ", ", n, " bytes early"));
    }
    p += got;
    offset += got;
    n -= got;
  }
  return absl::OkStatus();
}

Status ReadFile(const std::string& path, int64_t limit, std::vector<uint8_t>* out) {
  ASSIGN_OR_RETURN(const auto file, InputFile::Open(path));
  if (file->size() > limit) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " has ", file->size(), " bytes, at most ", limit, " are expected"));
  }
  out->resize(static_cast<size_t>(file->size()));
  return file->Read(0, file->size(), out->data());
}

Status ReadFileInflated(const std::string& path, int64_t limit, std::vector<uint8_t>* out) {
  gzFile file = gzopen(path.c_str(), "rbe");
  if (file == nullptr) return Errno("cannot open", path);
  out->clear();
  constexpr size_t kPiece = 1 << 16;
  Status status;
  while (status.ok()) {
    const size_t before = out->size();
    out->resize(before + kPiece);
    const int got = gzread(file, out->data() + before, kPiece);
    out->resize(before + std::max(got, 0));
    int code = Z_OK;
    const char* what = gzerror(file, &code);
    if (got < 0 || (code != Z_OK && code != Z_STREAM_END)) {
      status = absl::DataLossError(absl::StrCat(path, " is corrupt gzip data (", what, ")"));
    } else if (static_cast<int64_t>(out->size()) > limit) {
      status = absl::InvalidArgumentError(absl::StrCat(path, " inflates to more than the ", limit, " bytes expected"));
    } else if (got == 0) {
      break;
    }
  }
  // Z_BUF_ERROR: the last stream had no end.
  if (gzclose(file) != Z_OK && status.ok()) {
    status = absl::DataLossError(absl::StrCat(path, " is truncated gzip data"));
  }
  return status;
}

Status WriteFile(const std::string& path, const std::function<Status(const Sink&)>& write) {
  const std::string beside = absl::StrCat(path, ".tmp.", getpid());
  FILE* file = fopen(beside.c_str(), "wbe");
  if (file == nullptr) return Errno("cannot write", beside);
  Status status = write([&](absl::string_view piece) -> Status {
    if (fwrite(piece.data(), 1, piece.size(), file) != piece.size()) return Errno("cannot write", beside);
    return absl::OkStatus();
  });
  if (status.ok() && (fflush(file) != 0 || fsync(fileno(file)) != 0)) status = Errno("cannot write", beside);
  if (fclose(file) != 0 && status.ok()) status = Errno("cannot write", beside);
  if (status.ok() && rename(beside.c_str(), path.c_str()) != 0) status = Errno("cannot write", path);
  if (!status.ok()) unlink(beside.c_str());
  return status;
}

}  // namespace mslua::data
