#include "rendezvous/tls/private_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <functional>

#include "absl/strings/str_cat.h"

namespace mslua {
namespace {

constexpr size_t kMostBytes = 1 << 20;

std::string ModeText(mode_t mode) { return absl::StrCat(0, (mode >> 6) & 7, (mode >> 3) & 7, mode & 7); }

// `mistake`: what is wrong with the owner and the mode, and its fix; empty: nothing.
StatusOr<std::string> ReadChecked(absl::string_view what, const std::string& path,
                                  const std::function<std::string(const struct stat&)>& mistake) {
  const std::string name = absl::StrCat(what, " ", path);
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) {
    const std::string text = absl::StrCat(name, ": ", strerror(errno));
    return errno == ENOENT ? absl::NotFoundError(text) : absl::PermissionDeniedError(text);
  }
  struct stat info;
  Status status;
  std::string bytes;
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    status = absl::InvalidArgumentError(absl::StrCat(name, ": expected a regular file"));
  } else if (const std::string wrong = mistake(info); !wrong.empty()) {
    status = absl::PermissionDeniedError(absl::StrCat(name, ": ", wrong));
  } else {
    bytes.resize(kMostBytes + 1);
    size_t have = 0;
    ssize_t n = 0;
    while (have < bytes.size() && (n = read(fd, &bytes[have], bytes.size() - have)) > 0) have += static_cast<size_t>(n);
    bytes.resize(have);
    if (n < 0) status = absl::UnavailableError(absl::StrCat(name, ": ", strerror(errno)));
    if (have > kMostBytes) status = absl::InvalidArgumentError(absl::StrCat(name, ": expected at most 1 MiB"));
  }
  close(fd);
  if (!status.ok()) return status;
  return bytes;
}

}  // namespace

StatusOr<std::string> ReadSecretFile(absl::string_view what, const std::string& path) {
  return ReadChecked(what, path, [&](const struct stat& info) -> std::string {
    const bool mine = info.st_uid == geteuid() && (info.st_mode & 077) == 0;
    const bool of_root = info.st_uid == 0 && (info.st_mode & 037) == 0;
    if (mine || of_root) return "";
    return absl::StrCat("expected a file that only user ", geteuid(), " can read, but it belongs to user ", info.st_uid,
                        " with mode ", ModeText(info.st_mode), "; fix: chmod 600 ", path);
  });
}

StatusOr<std::string> ReadTrustedFile(absl::string_view what, const std::string& path) {
  return ReadChecked(what, path, [&](const struct stat& info) -> std::string {
    if ((info.st_uid == geteuid() || info.st_uid == 0) && (info.st_mode & 022) == 0) return "";
    return absl::StrCat("expected a file that only user ", geteuid(), " or root can change, but it belongs to user ",
                        info.st_uid, " with mode ", ModeText(info.st_mode), "; fix: chmod go-w ", path);
  });
}

}  // namespace mslua
