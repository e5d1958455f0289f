#include "rendezvous/job_secret.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "core/base/atomic_file.h"
#include "core/base/authentication.h"
#include "rendezvous/socket.h"

namespace mslua {
namespace {

constexpr size_t kLeastBytes = 16, kMostBytes = 4096;

std::string Name(const std::string& path) { return absl::StrCat("job secret ", path); }

}  // namespace

StatusOr<std::string> NewJobSecret() {
  ASSIGN_OR_RETURN(const std::string bytes, RandomBytes(32));
  return absl::BytesToHexString(bytes);
}

Status WriteJobSecret(const std::string& path, const std::string& secret) {
  const std::string text = absl::StrCat(secret, "\n");
  ASSIGN_OR_RETURN(const auto file, AtomicFile::Create(path, 0600));
  RETURN_IF_ERROR(file->Write(text.data(), text.size()));
  const Status made = file->CommitNew();
  return absl::IsAlreadyExists(made) ? absl::AlreadyExistsError(Name(path)) : made;
}

StatusOr<std::string> ReadJobSecret(const std::string& path) {
  const Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!fd) {
    const std::string what = absl::StrCat(Name(path), ": ", strerror(errno));
    return errno == ENOENT ? absl::NotFoundError(what) : absl::PermissionDeniedError(what);
  }
  struct stat info;
  if (fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(Name(path), ": expected a regular file"));
  }
  const bool mine = info.st_uid == geteuid() && (info.st_mode & 077) == 0;
  const bool of_root = info.st_uid == 0 && (info.st_mode & 037) == 0;
  if (!mine && !of_root) {
    return absl::PermissionDeniedError(
        absl::StrCat(Name(path), ": expected a file that only user ", geteuid(), " can read, but it belongs to user ",
                     info.st_uid, " with mode ", absl::Hex((info.st_mode >> 6) & 7), absl::Hex((info.st_mode >> 3) & 7),
                     absl::Hex(info.st_mode & 7), "; fix: chmod 600 ", path));
  }
  std::string text(kMostBytes + 1, 0);
  const ssize_t n = read(fd.get(), &text[0], text.size());
  text.resize(n > 0 ? static_cast<size_t>(n) : 0);
  const bool too_long = text.size() > kMostBytes;
  absl::StripTrailingAsciiWhitespace(&text);
  if (too_long || text.size() < kLeastBytes) {
    return absl::InvalidArgumentError(absl::StrCat(Name(path), ": expected ", kLeastBytes, " to ", kMostBytes,
                                                   " bytes, got ", too_long ? "more" : absl::StrCat(text.size()),
                                                   "; fix: remove it, and the scheduler makes another"));
  }
  return text;
}

StatusOr<std::string> MakeJobSecret(const std::string& path, bool* made) {
  *made = false;
  auto read = ReadJobSecret(path);
  if (!absl::IsNotFound(read.status())) return read;
  ASSIGN_OR_RETURN(const std::string secret, NewJobSecret());
  const Status written = WriteJobSecret(path, secret);
  if (absl::IsAlreadyExists(written)) return ReadJobSecret(path);  // by another process, just now
  RETURN_IF_ERROR(written);
  *made = true;
  return secret;
}

}  // namespace mslua
