#include "rendezvous/socket.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/types/optional.h"
#include "core/base/clock.h"

namespace mslua {
namespace {

constexpr absl::Duration kRetry = absl::Milliseconds(5);
constexpr absl::Duration kResolveAgain = absl::Milliseconds(500);  // what a name resolves to may change
constexpr absl::Duration kEachAddress = absl::Seconds(1);          // where a name has several: to accept
constexpr absl::Duration kNews = absl::Seconds(3);
constexpr int kBacklog = 4096;  // the system has a lower limit of its own

constexpr char kBrokenLinkPayload[] = "mslua/broken link";

// Whether `path` is a folder of this user in which no other user can make files.
bool IsOwnFolder(const char* path) {
  struct stat info;
  return stat(path, &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == geteuid() && (info.st_mode & 022) == 0;
}

// A folder that only this user can enter.
Status MakePrivateFolder(const std::string& path) {
  // A process that looks for folders of dead ones may remove it in between.
  constexpr int kTries = 100;
  struct stat info;
  for (int i = 0;; ++i) {
    if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return ErrnoStatus(absl::StrCat("making folder ", path));
    if (lstat(path.c_str(), &info) == 0) break;
    if (errno != ENOENT || i == kTries) return ErrnoStatus(absl::StrCat("looking at folder ", path));
  }
  if (!S_ISDIR(info.st_mode) || info.st_uid != geteuid() || (info.st_mode & 077) != 0) {
    return absl::PermissionDeniedError(absl::StrCat(path, " is not a folder that this user alone may enter (owner ",
                                                    info.st_uid, "); remove it, or set XDG_RUNTIME_DIR"));
  }
  return absl::OkStatus();
}

Status SetOption(const Fd& fd, int level, int name, int value) {
  if (setsockopt(fd.get(), level, name, &value, sizeof value) != 0) return ErrnoStatus("setting a socket option");
  return absl::OkStatus();
}

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

// Unavailable: the name is not known, or cannot be asked for now.
StatusOr<Addresses> Resolve(const Endpoint& endpoint, int flags) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(endpoint.host.c_str(), absl::StrCat(endpoint.port).c_str(), &hints, &found);
  if (error != 0) {
    const std::string text = absl::StrCat("address '", endpoint.host, "' cannot be resolved: ", gai_strerror(error));
    const bool may_come = error == EAI_NONAME || error == EAI_NODATA || error == EAI_AGAIN;
    return may_come ? absl::UnavailableError(text) : absl::InvalidArgumentError(text);
  }
  return Addresses(found, &freeaddrinfo);
}

// A system call, again where a signal has ended it.
template <class Call>
auto Again(const Call& call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

int Milliseconds(MonotonicTime deadline) {
  const absl::Duration left = std::min(deadline - MonotonicNow(), absl::Hours(1));
  if (left <= absl::ZeroDuration()) return 0;
  return static_cast<int>(absl::ToInt64Milliseconds(left) + 1);
}

StatusOr<Fd> Accept(const Fd& listener, MonotonicTime deadline) {
  RETURN_IF_ERROR(PollFor(listener, POLLIN, deadline));
  Fd fd(Again([&] { return accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC); }));
  if (!fd) return ErrnoStatus("accepting a connection");
  return fd;
}

// A connection to one address; its errno otherwise.
int ConnectOnce(const addrinfo& address, MonotonicTime deadline, Fd* fd) {
  *fd = Fd(socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!*fd) return errno;
  if (connect(fd->get(), address.ai_addr, address.ai_addrlen) == 0) return 0;
  // A signal does not end an attempt, which continues by itself.
  if (errno != EINPROGRESS && errno != EINTR) return errno;
  if (!PollFor(*fd, POLLOUT, deadline).ok()) return ETIMEDOUT;
  int error = 0;
  socklen_t size = sizeof error;
  return getsockopt(fd->get(), SOL_SOCKET, SO_ERROR, &error, &size) == 0 ? error : errno;
}

// Whether a socket is connected with itself: where nobody listens on a port that the kernel gives to those who connect,
// TCP may take it for both ends.
bool IsOwnPeer(const Fd& fd) {
  sockaddr_storage own = {}, peer = {};
  socklen_t own_size = sizeof own, peer_size = sizeof peer;
  return getsockname(fd.get(), reinterpret_cast<sockaddr*>(&own), &own_size) == 0 &&
         getpeername(fd.get(), reinterpret_cast<sockaddr*>(&peer), &peer_size) == 0 && own_size == peer_size &&
         std::memcmp(&own, &peer, own_size) == 0;
}

}  // namespace

Status ErrnoStatus(absl::string_view what) {
  const int error = errno;
  const std::string text = absl::StrCat(what, ": ", strerror(error));
  switch (error) {
    case EADDRINUSE:
      return absl::AlreadyExistsError(text);
    case EACCES:
    case EPERM:
      return absl::PermissionDeniedError(text);
    case EPIPE:
    case ECONNRESET:
    case ECONNREFUSED:
      return absl::UnavailableError(text);
    case ETIMEDOUT:
    case EHOSTUNREACH:
    case ENETUNREACH:
    case ENETDOWN: {
      Status broken = absl::UnavailableError(text);
      broken.SetPayload(kBrokenLinkPayload, absl::Cord());
      return broken;
    }
    default:
      return absl::InternalError(text);
  }
}

void Fd::Close() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

StatusOr<std::string> SocketRoot() {
  // What the path of a socket has beside it: '/', a job of 32, '/', a name of 20.
  constexpr size_t kLongest = sizeof(sockaddr_un::sun_path) - 1 - 54;
  std::vector<std::string> roots;
  const char* runtime = getenv("XDG_RUNTIME_DIR");
  if (runtime != nullptr && *runtime == '/' && IsOwnFolder(runtime)) roots.push_back(absl::StrCat(runtime, "/mslua"));
  const char* temporary = getenv("TMPDIR");
  if (temporary != nullptr && *temporary == '/') roots.push_back(absl::StrCat(temporary, "/mslua-", geteuid()));
  roots.push_back(absl::StrCat("/tmp/mslua-", geteuid()));
  const char* home = getenv("HOME");
  if (home != nullptr && *home == '/' && IsOwnFolder(home)) roots.push_back(absl::StrCat(home, "/.mslua"));
  std::vector<std::string> why;
  for (std::string& root : roots) {
    struct stat info;
    const bool there = lstat(root.c_str(), &info) == 0;
    if (root.size() > kLongest) {
      why.push_back(absl::StrCat(root, " (longer than ", kLongest, " bytes)"));
    } else if (there && info.st_uid != geteuid()) {
      why.push_back(absl::StrCat(root, " (user ", info.st_uid, "'s)"));
    } else if (!there && faccessat(AT_FDCWD, root.substr(0, root.rfind('/')).c_str(), W_OK | X_OK, AT_EACCESS) != 0) {
      why.push_back(absl::StrCat(root, " (cannot be made: ", strerror(errno), ")"));
    } else {
      return std::move(root);
    }
  }
  return absl::PermissionDeniedError(absl::StrCat("no folder for sockets: ", absl::StrJoin(why, ", "),
                                                  "; fix: set XDG_RUNTIME_DIR to a folder that only you can enter"));
}

StatusOr<std::string> MakeSocketFolder(absl::string_view job) {
  if (job.empty() || job.size() > 32 || !std::all_of(job.begin(), job.end(), [](unsigned char c) {
        return absl::ascii_isalnum(c) || c == '-' || c == '_';
      })) {
    return absl::InvalidArgumentError(
        absl::StrCat("job name '", job, "': expected 1 to 32 letters, digits, '-' or '_'"));
  }
  ASSIGN_OR_RETURN(std::string folder, SocketRoot());
  RETURN_IF_ERROR(MakePrivateFolder(folder));
  absl::StrAppend(&folder, "/", job);
  RETURN_IF_ERROR(MakePrivateFolder(folder));
  return folder;
}

void RemoveSocketFolder(absl::string_view job) {
  const auto root = SocketRoot();
  if (!root.ok() || job.empty()) return;
  const std::string folder = absl::StrCat(*root, "/", job);
  DIR* const entries = opendir(folder.c_str());
  if (entries == nullptr) return;
  while (const dirent* entry = readdir(entries)) {
    const std::string path = absl::StrCat(folder, "/", entry->d_name);
    struct stat info;
    if (lstat(path.c_str(), &info) == 0 && S_ISSOCK(info.st_mode)) unlink(path.c_str());
  }
  closedir(entries);
  rmdir(folder.c_str());
}

StatusOr<sockaddr_un> UnixAddress(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    return absl::InvalidArgumentError(absl::StrCat("socket path '", path, "' has ", path.size(),
                                                   " bytes, at most 107 are possible; set XDG_RUNTIME_DIR"));
  }
  memcpy(address.sun_path, path.data(), path.size());
  return address;
}

StatusOr<Fd> ListenUnix(const std::string& path) {
  ASSIGN_OR_RETURN(const sockaddr_un address, UnixAddress(path));
  Fd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!fd) return ErrnoStatus("making a socket");
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      listen(fd.get(), kBacklog) != 0) {
    return ErrnoStatus(absl::StrCat("listening on ", path));
  }
  return fd;
}

StatusOr<Fd> ConnectUnix(const std::string& path, MonotonicTime deadline) {
  ASSIGN_OR_RETURN(const sockaddr_un address, UnixAddress(path));
  while (true) {
    Fd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    if (!fd) return ErrnoStatus("making a socket");
    if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return fd;
    if (errno != ENOENT && errno != ECONNREFUSED && errno != EAGAIN && errno != EINTR) {
      return ErrnoStatus(absl::StrCat("connecting to ", path));
    }
    if (MonotonicNow() >= deadline) return absl::DeadlineExceededError(absl::StrCat("nobody listens on ", path));
    absl::SleepFor(kRetry);
  }
}

StatusOr<Fd> AcceptUnix(const Fd& listener, MonotonicTime deadline) {
  ASSIGN_OR_RETURN(Fd fd, Accept(listener, deadline));
  ucred peer = {};
  socklen_t size = sizeof peer;
  if (getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return ErrnoStatus("asking who connected");
  if (peer.uid != geteuid()) {
    return absl::PermissionDeniedError(absl::StrCat("process ", peer.pid, " of user ", peer.uid, " connected"));
  }
  return fd;
}

int PeerPid(const Fd& fd) {
  ucred peer = {};
  socklen_t size = sizeof peer;
  return getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 ? peer.pid : 0;
}

bool PeerCanRun(const Fd& fd) {
  const int pid = PeerPid(fd);
  if (pid <= 0 || pid == getpid()) return false;
  const Fd file(open(absl::StrCat("/proc/", pid, "/stat").c_str(), O_RDONLY | O_CLOEXEC));
  char stat[512];
  const ssize_t n = file ? read(file.get(), stat, sizeof stat) : 0;
  // "812 (name) S 1 ...": the name may hold anything.
  const absl::string_view text(stat, static_cast<size_t>(std::max<ssize_t>(n, 0)));
  const size_t end = text.rfind(')');
  if (end == absl::string_view::npos || end + 2 >= text.size()) return false;
  return absl::StrContains("RSD", text.substr(end + 2, 1));
}

Status SendPacket(const Fd& fd, absl::string_view bytes, int descriptor) {
  iovec part = {const_cast<char*>(bytes.data()), bytes.size()};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  if (descriptor >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
  }
  if (Again([&] { return sendmsg(fd.get(), &message, MSG_NOSIGNAL); }) < 0)
    return ErrnoStatus("sending to a rank of this host");
  return absl::OkStatus();
}

StatusOr<Packet> ReceivePacket(const Fd& fd, MonotonicTime deadline) {
  RETURN_IF_ERROR(PollFor(fd, POLLIN, deadline));
  char buffer[4096];
  iovec part = {buffer, sizeof buffer};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t size = Again([&] { return recvmsg(fd.get(), &message, MSG_CMSG_CLOEXEC); });
  if (size < 0) return ErrnoStatus("receiving from a rank of this host");
  if (size == 0) return absl::UnavailableError("the other end has closed");
  Packet packet;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS &&
        header->cmsg_len == CMSG_LEN(sizeof(int))) {
      int descriptor;
      memcpy(&descriptor, CMSG_DATA(header), sizeof descriptor);
      packet.descriptor = Fd(descriptor);
    }
  }
  if ((message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) return absl::DataLossError("a message was truncated");
  packet.bytes.assign(buffer, size);
  return packet;
}

bool PeerClosed(const Fd& fd) {
  char byte;
  const ssize_t n = recv(fd.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
}

StatusOr<Endpoint> ParseEndpoint(absl::string_view text) {
  const auto refuse = [&] {
    return absl::InvalidArgumentError(absl::StrCat("'", text, "' is not an address: expected HOST:PORT"));
  };
  if (!text.empty() && text.front() == '/') return Endpoint{std::string(text), 0};
  const size_t colon = text.rfind(':');
  if (colon == absl::string_view::npos) return refuse();
  absl::string_view host = text.substr(0, colon);
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != absl::string_view::npos) {
    return refuse();
  }
  uint32_t port;
  if (host.empty() || !absl::SimpleAtoi(text.substr(colon + 1), &port) || port > 65535) return refuse();
  return Endpoint{std::string(host), static_cast<uint16_t>(port)};
}

std::string ToString(const Endpoint& endpoint) {
  if (!endpoint.host.empty() && endpoint.host[0] == '/') return endpoint.host;
  const bool v6 = endpoint.host.find(':') != std::string::npos;
  return absl::StrCat(v6 ? "[" : "", endpoint.host, v6 ? "]:" : ":", endpoint.port);
}

StatusOr<Fd> ListenTcp(const Endpoint& endpoint) {
  ASSIGN_OR_RETURN(const Addresses addresses, Resolve(endpoint, AI_PASSIVE));
  for (const addrinfo* a = addresses.get(); a != nullptr; a = a->ai_next) {
    Fd fd(socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (fd) RETURN_IF_ERROR(SetOption(fd, SOL_SOCKET, SO_REUSEADDR, 1));
    if (fd && bind(fd.get(), a->ai_addr, a->ai_addrlen) == 0 && listen(fd.get(), kBacklog) == 0) return fd;
    if (errno != EAFNOSUPPORT && errno != EADDRNOTAVAIL) break;
  }
  return ErrnoStatus(absl::StrCat("listening on ", ToString(endpoint)));
}

StatusOr<Fd> ConnectTcp(const Endpoint& endpoint, MonotonicTime deadline) {
  StatusOr<Addresses> addresses = absl::UnavailableError("");
  MonotonicTime resolve_at = MonotonicNow();
  while (true) {
    if (MonotonicNow() >= resolve_at) {
      addresses = Resolve(endpoint, 0);
      if (!addresses.ok() && !absl::IsUnavailable(addresses.status())) return addresses.status();
      resolve_at = MonotonicNow() + kResolveAgain;
    }
    std::string why = std::string(addresses.status().message());
    const addrinfo* const first = addresses.ok() ? addresses->get() : nullptr;
    for (const addrinfo* a = first; a != nullptr; a = a->ai_next) {
      // An address that nothing answers from leaves time for the others.
      const bool only = first->ai_next == nullptr;
      const absl::Duration share = std::min((deadline - MonotonicNow()) / 2, kEachAddress);
      Fd fd;
      int error = ConnectOnce(*a, only ? deadline : MonotonicNow() + share, &fd);
      if (error == 0 && IsOwnPeer(fd)) error = ECONNREFUSED;
      if (error == 0) {
        fcntl(fd.get(), F_SETFL, fcntl(fd.get(), F_GETFL) & ~O_NONBLOCK);
        RETURN_IF_ERROR(SetTcpOptions(fd));
        return fd;
      }
      why = strerror(error);
    }
    if (MonotonicNow() >= deadline) {
      return absl::DeadlineExceededError(absl::StrCat("nobody answers at ", ToString(endpoint), ": ", why));
    }
    absl::SleepFor(4 * kRetry);
  }
}

Status AwaitName(const Endpoint& endpoint, MonotonicTime deadline,
                 const std::function<void(const std::string& line)>& news) {
  const MonotonicTime began = MonotonicNow();
  MonotonicTime next_news = began + kNews;
  while (true) {
    const Status found = Resolve(endpoint, 0).status();
    if (!absl::IsUnavailable(found)) return found;
    const MonotonicTime now = MonotonicNow();
    if (now >= deadline) {
      return absl::DeadlineExceededError(
          absl::StrCat(found.message(), ", nor could it be within ",
                       absl::FormatDuration(absl::Trunc(now - began, absl::Seconds(1)))));
    }
    if (news && now >= next_news) {
      next_news = now + kNews;
      news(absl::StrCat("waiting: ", found.message(), "; trying for another ",
                        absl::FormatDuration(absl::Trunc(deadline - now, absl::Seconds(1)))));
    }
    absl::SleepFor(std::min(kResolveAgain, deadline - now));
  }
}

Status SetTcpOptions(const Fd& fd) {
  RETURN_IF_ERROR(SetOption(fd, IPPROTO_TCP, TCP_NODELAY, 1));
  RETURN_IF_ERROR(SetOption(fd, SOL_SOCKET, SO_KEEPALIVE, 1));
  RETURN_IF_ERROR(SetOption(fd, IPPROTO_TCP, TCP_KEEPIDLE, 1));
  RETURN_IF_ERROR(SetOption(fd, IPPROTO_TCP, TCP_KEEPINTVL, 1));
  RETURN_IF_ERROR(SetOption(fd, IPPROTO_TCP, TCP_KEEPCNT, 3));
  return SetOption(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, 2000);
}

StatusOr<Endpoint> LocalEndpoint(const Fd& fd) {
  sockaddr_storage address = {};
  socklen_t size = sizeof address;
  if (getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0)
    return ErrnoStatus("reading an address");
  char host[NI_MAXHOST], port[NI_MAXSERV];
  if (getnameinfo(reinterpret_cast<sockaddr*>(&address), size, host, sizeof host, port, sizeof port,
                  NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return absl::InternalError("reading an address");
  }
  uint32_t number = 0;
  if (!absl::SimpleAtoi(port, &number)) return absl::InternalError("reading a port");
  return Endpoint{host, static_cast<uint16_t>(number)};
}

Status SetNonBlocking(const Fd& fd) {
  if (fcntl(fd.get(), F_SETFL, fcntl(fd.get(), F_GETFL) | O_NONBLOCK) != 0) return ErrnoStatus("setting a socket up");
  return absl::OkStatus();
}

Status SendAll(const Fd& fd, absl::string_view bytes, MonotonicTime deadline) {
  while (!bytes.empty()) {
    const ssize_t n = send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0) {
      bytes.remove_prefix(n);
    } else if (errno == EAGAIN) {
      RETURN_IF_ERROR(PollFor(fd, POLLOUT, deadline));
    } else if (errno != EINTR) {
      return ErrnoStatus("sending");
    }
  }
  return absl::OkStatus();
}

Status ReceiveAll(const Fd& fd, void* data, size_t size, MonotonicTime deadline) {
  char* to = static_cast<char*>(data);
  while (size > 0) {
    const ssize_t n = recv(fd.get(), to, size, MSG_DONTWAIT);
    if (n > 0) {
      to += n;
      size -= n;
    } else if (n == 0) {
      return absl::UnavailableError("the other end has closed");
    } else if (errno == EAGAIN) {
      RETURN_IF_ERROR(PollFor(fd, POLLIN, deadline));
    } else if (errno != EINTR) {
      return ErrnoStatus("receiving");
    }
  }
  return absl::OkStatus();
}

bool IsBrokenLink(const Status& status) { return status.GetPayload(kBrokenLinkPayload).has_value(); }

Status PollFor(const Fd& fd, short events, MonotonicTime deadline) {
  pollfd entry = {fd.get(), events, 0};
  while (true) {
    const int n = poll(&entry, 1, Milliseconds(deadline));
    if (n > 0) return absl::OkStatus();
    if (n < 0 && errno != EINTR) return ErrnoStatus("waiting for a socket");
    if (n == 0 && MonotonicNow() >= deadline) return absl::DeadlineExceededError("no answer in time");
  }
}

// Connecting a datagram socket sends nothing; it only chooses the way.
StatusOr<std::string> AddressTowards(const Endpoint& endpoint) {
  ASSIGN_OR_RETURN(const Addresses addresses, Resolve(endpoint, 0));
  for (const addrinfo* a = addresses.get(); a != nullptr; a = a->ai_next) {
    const Fd fd(socket(a->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (!fd || connect(fd.get(), a->ai_addr, a->ai_addrlen) != 0) continue;
    ASSIGN_OR_RETURN(const Endpoint own, LocalEndpoint(fd));
    return own.host;
  }
  return ErrnoStatus(absl::StrCat("looking for the way to ", ToString(endpoint)));
}

namespace {

struct Subnet {
  std::string address;
  uint32_t bits = 0, mask = 0;  // in the host's byte order
};

// "10.0.0.1/24"; nothing where the text is something else.
absl::optional<Subnet> ParseSubnet(absl::string_view text) {
  Subnet subnet;
  const size_t slash = text.find('/');
  in_addr address;
  uint32_t length;
  if (slash == absl::string_view::npos) return absl::nullopt;
  subnet.address = std::string(text.substr(0, slash));
  if (inet_pton(AF_INET, subnet.address.c_str(), &address) != 1 || !absl::SimpleAtoi(text.substr(slash + 1), &length) ||
      length > 32) {
    return absl::nullopt;
  }
  subnet.mask = length == 0 ? 0 : ~uint32_t{0} << (32 - length);
  subnet.bits = ntohl(address.s_addr);
  return subnet;
}

std::string TextOf(const in_addr& address) {
  char text[INET_ADDRSTRLEN];
  inet_ntop(AF_INET, &address, text, sizeof text);
  return text;
}

}  // namespace

StatusOr<std::vector<std::string>> OwnAddresses() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return ErrnoStatus("listing the network interfaces");
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, &freeifaddrs);
  const auto outwards = AddressTowards({"192.0.2.1", 9});  // an address of no host: the way to it is the default route
  std::vector<std::string> all;
  for (const ifaddrs* i = list; i != nullptr; i = i->ifa_next) {
    const bool up = (i->ifa_flags & IFF_UP) != 0 && (i->ifa_flags & IFF_LOOPBACK) == 0;
    if (!up || i->ifa_addr == nullptr || i->ifa_addr->sa_family != AF_INET || i->ifa_netmask == nullptr) continue;
    const std::string address = TextOf(reinterpret_cast<const sockaddr_in*>(i->ifa_addr)->sin_addr);
    const uint32_t mask = ntohl(reinterpret_cast<const sockaddr_in*>(i->ifa_netmask)->sin_addr.s_addr);
    const bool first = outwards.ok() && *outwards == address;
    all.insert(first ? all.begin() : all.end(), absl::StrCat(address, "/", __builtin_popcount(mask)));
  }
  return all;
}

StatusOr<std::string> CommonAddress(const std::vector<std::string>& mine,
                                    const std::vector<std::vector<std::string>>& others) {
  std::vector<Subnet> own;
  for (const std::string& text : mine) {
    if (const auto subnet = ParseSubnet(text)) own.push_back(*subnet);
  }
  if (own.empty()) {
    return absl::NotFoundError("this host has no address on a network (only loopback): name an interface (--iface)");
  }
  for (const Subnet& subnet : own) {
    const auto inside = [&](const std::string& text) {
      const auto other = ParseSubnet(text);
      return other && (other->bits & subnet.mask) == (subnet.bits & subnet.mask);
    };
    const bool all = std::all_of(others.begin(), others.end(), [&](const std::vector<std::string>& host) {
      return std::any_of(host.begin(), host.end(), inside);
    });
    if (all) return subnet.address;
  }
  return own.front().address;
}

StatusOr<std::string> InterfaceAddress(absl::string_view name_or_subnet) {
  const bool is_subnet = absl::StrContains(name_or_subnet, '/');
  const auto subnet = ParseSubnet(name_or_subnet);
  if (is_subnet && !subnet) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", name_or_subnet, "' is neither an interface nor a subnet such as 10.0.0.0/8"));
  }
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return ErrnoStatus("listing the network interfaces");
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, &freeifaddrs);
  std::vector<std::string> known;
  for (const ifaddrs* i = list; i != nullptr; i = i->ifa_next) {
    if (i->ifa_addr == nullptr || i->ifa_addr->sa_family != AF_INET) continue;
    const in_addr address = reinterpret_cast<const sockaddr_in*>(i->ifa_addr)->sin_addr;
    const bool match = is_subnet ? (ntohl(address.s_addr) & subnet->mask) == (subnet->bits & subnet->mask)
                                 : name_or_subnet == i->ifa_name;
    if (match) return TextOf(address);
    known.push_back(absl::StrCat(i->ifa_name, " (", TextOf(address), ")"));
  }
  return absl::NotFoundError(
      absl::StrCat("no network interface matches '", name_or_subnet, "'; this host has ", absl::StrJoin(known, ", ")));
}

}  // namespace mslua
