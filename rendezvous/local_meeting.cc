#include "rendezvous/local_meeting.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <climits>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/base/authentication.h"
#include "core/base/hash.h"
#include "rendezvous/stale_folders.h"

namespace mslua {
namespace {

constexpr char kPrefix[] = "meet-";
constexpr int kBacklog = 4096;  // the kernel's own limit (somaxconn) is the lower one

void RemoveAll(const Fd& folder, const std::string& path) {
  DIR* const entries = opendir(path.c_str());
  if (entries == nullptr) return;
  while (const dirent* entry = readdir(entries)) {
    if (entry->d_name[0] != '.') unlinkat(folder.get(), entry->d_name, 0);
  }
  closedir(entries);
  rmdir(path.c_str());
}

Fd OpenFolder(const std::string& path) {
  return Fd(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
}

}  // namespace

bool IsLoopback(const std::string& host) {
  in_addr v4;
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1) return ntohl(v4.s_addr) >> 24 == 127;
  return host == "localhost" || host == "::1";
}

bool IsOwnAddress(const std::string& host) {
  if (IsLoopback(host)) return true;
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), nullptr, &hints, &found) != 0) return false;
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, &freeaddrinfo);
  for (const addrinfo* a = found; a != nullptr; a = a->ai_next) {
    const Fd fd(socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (fd && bind(fd.get(), a->ai_addr, a->ai_addrlen) == 0) return true;
  }
  return false;
}

std::string MeetingName(const Endpoint& endpoint) {
  const bool usual = endpoint.host == "localhost" || endpoint.host == "127.0.0.1" || endpoint.host == "::1";
  char space[64] = "";
  if (readlink("/proc/self/ns/net", space, sizeof space - 1) < 0) *space = 0;
  const std::string all = absl::StrCat(space, " ", usual ? "" : endpoint.host);
  return absl::StrCat(kPrefix, endpoint.port, "-", absl::Hex(Crc32c(all.data(), all.size()), absl::kZeroPad8));
}

StatusOr<std::string> NewMeetingName() {
  ASSIGN_OR_RETURN(const std::string random, RandomBytes(8));
  return absl::StrCat(kPrefix, absl::BytesToHexString(random));
}

std::string MeetingSocket(const std::string& folder) { return absl::StrCat(folder, "/socket"); }

StatusOr<std::string> MeetingPath(const std::string& name) {
  ASSIGN_OR_RETURN(const std::string root, SocketRoot());
  return absl::StrCat(root, "/", name);
}

StatusOr<std::unique_ptr<MeetingFolder>> MeetingFolder::Make(const std::string& name) {
  RemoveDeadMeetings(name);  // what is in the folder of this name stays: it has been this one's before
  // Who looks for folders of dead processes holds the lock for a moment, and may remove the folder.
  constexpr int kTries = 50;
  for (int i = 0;; ++i) {
    ASSIGN_OR_RETURN(std::string path, MakeSocketFolder(name));
    Fd lock = OpenFolder(path);
    if (lock && flock(lock.get(), LOCK_EX | LOCK_NB) == 0) {
      if (!IsThere(lock.get(), path)) continue;
      unlink(MeetingSocket(path).c_str());
      return std::unique_ptr<MeetingFolder>(new MeetingFolder(std::move(path), std::move(lock)));
    }
    if (i == kTries) {
      return absl::AlreadyExistsError(absl::StrCat("another process of this user listens there (", path, ")"));
    }
    absl::SleepFor(absl::Milliseconds(4));
  }
}

// Once: another process may have made a folder of this name since.
void MeetingFolder::Remove() {
  if (!removed_) RemoveAll(lock_, path_);
  removed_ = true;
}

std::string MeetingFolder::socket() const { return MeetingSocket(path_); }

StatusOr<Fd> MeetingFolder::Listen(int type) const {
  ASSIGN_OR_RETURN(const sockaddr_un address, UnixAddress(socket()));
  Fd fd(::socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd || bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      listen(fd.get(), kBacklog) != 0) {
    return absl::UnavailableError(absl::StrCat("listening on ", socket(), ": ", strerror(errno)));
  }
  return fd;
}

StatusOr<Fd> ConnectMeeting(const std::string& path, int type) {
  ASSIGN_OR_RETURN(const sockaddr_un address, UnixAddress(path));
  const std::string folder = path.substr(0, path.rfind('/'));
  struct stat info;
  if (lstat(folder.c_str(), &info) == 0 &&
      (!S_ISDIR(info.st_mode) || info.st_uid != geteuid() || (info.st_mode & 077) != 0)) {
    return absl::PermissionDeniedError(absl::StrCat(folder, " is not a folder that user ", geteuid(),
                                                    " alone can enter: it belongs to user ", info.st_uid));
  }
  Fd fd(socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd || connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    const std::string what = absl::StrCat("connecting to ", path, ": ", strerror(errno));
    const bool later = errno == ENOENT || errno == ECONNREFUSED || errno == EAGAIN;
    return later ? absl::UnavailableError(what) : absl::PermissionDeniedError(what);
  }
  ucred peer = {};
  socklen_t size = sizeof peer;
  if (getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || peer.uid != geteuid()) {
    return absl::PermissionDeniedError(
        absl::StrCat("process ", peer.pid, " of user ", peer.uid, " listens on ", path, ", expected user ", geteuid()));
  }
  return fd;
}

bool IsHeld(const std::string& path) {
  const Fd folder = OpenFolder(path);
  return folder && flock(folder.get(), LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

void RemoveDeadMeetings(const std::string& but) {
  const auto root = SocketRoot();
  if (!root.ok()) return;
  DIR* const entries = opendir(root->c_str());
  if (entries == nullptr) return;
  std::vector<std::string> folders;
  while (const dirent* entry = readdir(entries)) {
    if (absl::StartsWith(entry->d_name, kPrefix) && but != entry->d_name)
      folders.push_back(absl::StrCat(*root, "/", entry->d_name));
  }
  closedir(entries);
  for (const std::string& path : folders) {
    const Fd folder = OpenFolder(path);
    if (folder && flock(folder.get(), LOCK_EX | LOCK_NB) == 0 && IsThere(folder.get(), path)) RemoveAll(folder, path);
  }
}

}  // namespace mslua
