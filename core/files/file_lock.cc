#include "core/files/file_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace mslua {
namespace {

// What the holder wrote, as it may be shown.
std::string HolderOf(int fd) {
  char text[200];
  const ssize_t n = pread(fd, text, sizeof text, 0);
  std::string shown;
  for (ssize_t i = 0; i < n && text[i] != '\n'; ++i)
    shown += absl::ascii_isprint(static_cast<unsigned char>(text[i])) ? text[i] : '?';
  return shown.empty() ? "another process" : shown;
}

// For people alone: without it the lock is as good.
void WriteHolder(int fd) {
  char host[64] = "this host";
  gethostname(host, sizeof host - 1);
  const std::string text = absl::StrCat("pid ", getpid(), " on ", host, "\n");
  if (ftruncate(fd, 0) != 0 || pwrite(fd, text.data(), text.size(), 0) < 0) return;
}

}  // namespace

StatusOr<std::unique_ptr<FileLock>> FileLock::Acquire(const std::string& path, absl::Duration wait) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (fd < 0) return FileError("cannot write", path);
  const auto until = std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(wait);
  while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) return std::unique_ptr<FileLock>(new FileLock(fd, false));
    if (std::chrono::steady_clock::now() >= until) {
      const std::string holder = HolderOf(fd);
      close(fd);
      return absl::UnavailableError(absl::StrCat("in use by ", holder, ", which has locked ", path));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  WriteHolder(fd);
  return std::unique_ptr<FileLock>(new FileLock(fd, true));
}

bool FileLock::IsHeld(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return false;
  // A shared lock, for a moment: Acquire waits longer than that.
  int result;
  do result = flock(fd, LOCK_SH | LOCK_NB);
  while (result != 0 && errno == EINTR);
  const bool held = result != 0 && errno == EWOULDBLOCK;
  close(fd);
  return held;
}

FileLock::~FileLock() { close(fd_); }

}  // namespace mslua
