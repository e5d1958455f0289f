#include "core/base/atomic_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/sync_folder.h"

namespace mslua {
namespace {

constexpr absl::string_view kMark = ".tmp-";

std::string WithoutTrailingSlashes(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

std::string NameBeside(const std::string& path) {
  static std::atomic<int64_t> count{0};
  return absl::StrCat(path, kMark, getpid(), "-", count.fetch_add(1));
}

// Locks what was just made as `path` and opened as `fd`. False: RemoveLeftovers() took it for a leftover in the
// moment before the lock, so it must be made again.
bool LockNew(const std::string& path, int fd) {
  (void)flock(fd, LOCK_EX);  // without locks nothing is ever taken for a leftover
  struct stat mine, there;
  return fstat(fd, &mine) == 0 && stat(path.c_str(), &there) == 0 && mine.st_ino == there.st_ino;
}

// Whether the next byte goes to a multiple of `block`.
bool AtBlock(int fd, size_t block) {
  const off_t at = lseek(fd, 0, SEEK_CUR);
  return at >= 0 && static_cast<size_t>(at) % block == 0;
}

// Past the page cache, or through it; gives which it is now. A file system that cannot write directly says so here, or
// when it is written to.
bool SetDirect(int fd, bool on) {
  const int flags = fcntl(fd, F_GETFL);
  if (flags < 0) return false;
  const int wanted = on ? flags | O_DIRECT : flags & ~O_DIRECT;
  if (wanted != flags && fcntl(fd, F_SETFL, wanted) != 0) return (flags & O_DIRECT) != 0;
  return on;
}

// Whether what is there is no file to replace, but a device or a pipe; /dev/stdout may be a file, by a link.
bool IsInPlace(const std::string& path) {
  struct stat there;
  if (stat(path.c_str(), &there) != 0) return false;
  if (!S_ISREG(there.st_mode) && !S_ISDIR(there.st_mode)) return true;
  std::error_code error;
  return absl::StartsWith(std::filesystem::read_symlink(path, error).string(), "/proc/");
}

}  // namespace

StatusOr<std::unique_ptr<AtomicFile>> AtomicFile::Create(const std::string& path, std::optional<mode_t> mode) {
  if (IsInPlace(path)) {
    const int fd = open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
    if (fd < 0) return WriteError("cannot write", path);
    return std::unique_ptr<AtomicFile>(new AtomicFile(path, "", fd));
  }
  while (true) {
    const std::string beside = NameBeside(path);
    const int fd = open(beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode.value_or(0666));
    if (fd < 0 && errno == EEXIST) continue;  // a process of this pid left it, or one of another container has it
    if (fd < 0) return WriteError("cannot write", path);
    if (LockNew(beside, fd)) {
      std::unique_ptr<AtomicFile> file(new AtomicFile(path, beside, fd));
      if (mode.has_value() && fchmod(fd, *mode) != 0) return WriteError("cannot write", path);
      return file;
    }
    close(fd);
  }
}

AtomicFile::~AtomicFile() {
  if (!committed_ && !beside_.empty()) unlink(beside_.c_str());
  close(fd_);
}

// Large writes of whole blocks from memory that begins at a block go to the disk without a copy in the page cache: that
// copy would take as long as hashing, and memory that training may need.
Status AtomicFile::Write(const void* data, size_t size) {
  constexpr size_t kBlock = 4096, kLarge = 256 << 10;
  const bool whole =
      size >= kLarge && size % kBlock == 0 && reinterpret_cast<uintptr_t>(data) % kBlock == 0 && AtBlock(fd_, kBlock);
  bool direct = SetDirect(fd_, whole);
  const char* p = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t written = write(fd_, p, size);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EINVAL && direct) {
      direct = SetDirect(fd_, false);
      continue;
    }
    if (written < 0) return WriteError("cannot write", path_);
    p += written;
    size -= static_cast<size_t>(written);
  }
  return absl::OkStatus();
}

Status AtomicFile::Commit() {
  if (beside_.empty()) return absl::OkStatus();
  if (fsync(fd_) != 0) return WriteError("cannot write", path_);
  if (rename(beside_.c_str(), path_.c_str()) != 0) return WriteError("cannot write", path_);
  committed_ = true;
  return SyncFolder(ParentOf(path_));
}

Status AtomicFile::CommitNew() {
  if (beside_.empty())
    return absl::AlreadyExistsError(absl::StrCat("cannot make ", path_, ": a device or a pipe is there"));
  if (fsync(fd_) != 0) return WriteError("cannot write", path_);
  if (link(beside_.c_str(), path_.c_str()) != 0) {
    if (errno == EEXIST) return absl::AlreadyExistsError(absl::StrCat("cannot make ", path_, ": it is there"));
    return WriteError("cannot write", path_);
  }
  return SyncFolder(ParentOf(path_));
}

Status WriteFileAtomically(const std::string& path, absl::string_view contents) {
  ASSIGN_OR_RETURN(const auto file, AtomicFile::Create(path));
  RETURN_IF_ERROR(file->Write(contents.data(), contents.size()));
  return file->Commit();
}

StatusOr<std::unique_ptr<AtomicFolder>> AtomicFolder::Create(const std::string& path) {
  const std::string place = WithoutTrailingSlashes(path);
  if (IsInPlace(place))
    return absl::FailedPreconditionError(
        absl::StrCat("cannot make the folder ", place, ": a device or a pipe is there"));
  while (true) {
    const std::string beside = NameBeside(place);
    if (mkdir(beside.c_str(), 0777) != 0) {
      if (errno == EEXIST) continue;
      return WriteError("cannot make the folder", place);
    }
    const int fd = open(beside.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0 && LockNew(beside, fd)) {
      return std::unique_ptr<AtomicFolder>(new AtomicFolder(place, beside, fd));
    }
    if (fd < 0 && errno != ENOENT) return WriteError("cannot open the folder", beside);
    if (fd >= 0) close(fd);
  }
}

AtomicFolder::~AtomicFolder() {
  if (!committed_) RemoveTree(beside_).IgnoreError();  // RemoveLeftovers() gets another chance
  close(fd_);
}

// Of a file system that cannot exchange names.
Status AtomicFolder::Replace() {
  if (rename(beside_.c_str(), path_.c_str()) == 0) return absl::OkStatus();
  if (errno != ENOTEMPTY && errno != EEXIST) return WriteError("cannot write", path_);
  ASSIGN_OR_RETURN(const auto old, AtomicFolder::Create(path_));  // a place to move the old one to
  if (rename(path_.c_str(), old->beside_.c_str()) != 0) return WriteError("cannot replace", path_);
  if (rename(beside_.c_str(), path_.c_str()) == 0) return absl::OkStatus();
  const Status failed = WriteError("cannot write", path_);
  if (rename(old->beside_.c_str(), path_.c_str()) == 0) old->committed_ = true;
  return failed;
}

Status AtomicFolder::Commit() {
  RETURN_IF_ERROR(SyncFolder(beside_));
  bool replaced = false;
  if (renameat2(AT_FDCWD, beside_.c_str(), AT_FDCWD, path_.c_str(), RENAME_NOREPLACE) != 0) {
    if (errno == EEXIST) {
      replaced = true;
      if (renameat2(AT_FDCWD, beside_.c_str(), AT_FDCWD, path_.c_str(), RENAME_EXCHANGE) != 0) {
        return WriteError("cannot replace", path_);
      }
    } else if (errno == EINVAL) {  // a file system without renameat2's flags, such as NFS
      RETURN_IF_ERROR(Replace());
    } else {
      return WriteError("cannot write", path_);
    }
  }
  committed_ = true;
  RETURN_IF_ERROR(SyncFolder(ParentOf(path_)));
  if (replaced) RemoveTree(beside_).IgnoreError();  // RemoveLeftovers() gets another chance
  return absl::OkStatus();
}

bool IsTemporaryName(absl::string_view name) {
  const size_t mark = name.rfind(kMark);
  if (mark == absl::string_view::npos || mark == 0) return false;
  const absl::string_view rest = name.substr(mark + kMark.size());
  const size_t dash = rest.find('-');
  const auto digits = [](absl::string_view s) {
    return !s.empty() && std::all_of(s.begin(), s.end(), [](char c) { return absl::ascii_isdigit(c); });
  };
  return dash != absl::string_view::npos && digits(rest.substr(0, dash)) && digits(rest.substr(dash + 1));
}

int RemoveLeftovers(const std::string& folder) {
  std::error_code error;
  std::vector<std::string> found;
  for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (IsTemporaryName(it->path().filename().string())) found.push_back(it->path().string());
  }
  int removed = 0;
  for (const std::string& path : found) {
    const int fd = open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) continue;
    if (flock(fd, LOCK_EX | LOCK_NB) == 0 && RemoveTree(path).ok()) ++removed;
    close(fd);
  }
  return removed;
}

Status RemoveTree(const std::string& path) {
  std::error_code error;
  std::filesystem::remove_all(path, error);
  errno = error.value();
  return error ? WriteError("cannot remove", path) : absl::OkStatus();
}

Status RemoveAtomically(const std::string& path) {
  const std::string place = WithoutTrailingSlashes(path);
  const std::string beside = NameBeside(place);
  if (rename(place.c_str(), beside.c_str()) != 0) {
    return errno == ENOENT ? absl::OkStatus() : WriteError("cannot remove", place);
  }
  return RemoveTree(beside);
}

}  // namespace mslua
