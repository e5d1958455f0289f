// Sockets: what collectives and rendezvous need of them. Every wait has a deadline; errors name the address.
#pragma once

#include <sys/un.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "core/base/clock.h"
#include "core/base/status.h"

namespace mslua {

// Owns a descriptor.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    Close();
    fd_ = std::exchange(other.fd_, -1);
    return *this;
  }
  ~Fd() { Close(); }
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void Close();

 private:
  int fd_ = -1;
};

// The folder that holds the folders of MakeSocketFolder; it may not exist yet. The first of $XDG_RUNTIME_DIR/mslua (if
// only this user can write to $XDG_RUNTIME_DIR), $TMPDIR/mslua-<uid>, /tmp/mslua-<uid> and $HOME/.mslua whose path is
// short enough for sockets (53 bytes), which does not belong to another user, and which is there or can be made.
// PermissionDenied: there is none.
StatusOr<std::string> SocketRoot();
// The folder for the sockets of `job` (letters, digits, '-', '_') in SocketRoot(), made when missing, with mode 0700.
// Other processes remove it unless a process holds it: use MakeHeldFolder() of stale_folders.h, or a MeetingFolder.
// PermissionDenied: one of the two folders belongs to another user, is open to others or is a symbolic link.
StatusOr<std::string> MakeSocketFolder(absl::string_view job);
// Takes away this host's folder of a job that is over, with the sockets in it: ranks that were killed while they met
// leave theirs. Nothing where there is none.
void RemoveSocketFolder(absl::string_view job);

// The address of the Unix socket at `path`. InvalidArgument: a path over 107 bytes.
StatusOr<sockaddr_un> UnixAddress(const std::string& path);

// Unix sockets that keep message boundaries and carry descriptors. InvalidArgument: a path over 107 bytes.
StatusOr<Fd> ListenUnix(const std::string& path);
// Tries until somebody listens there.
StatusOr<Fd> ConnectUnix(const std::string& path, MonotonicTime deadline);
// Refuses processes of other users.
StatusOr<Fd> AcceptUnix(const Fd& listener, MonotonicTime deadline);
// The process at the other end.
int PeerPid(const Fd& fd);
// Whether the other end of a Unix socket is another process that runs, or would if it had a core: one that is there and
// that no signal has stopped. False where that is not known.
bool PeerCanRun(const Fd& fd);
// One message with at most one descriptor (-1: none).
Status SendPacket(const Fd& fd, absl::string_view bytes, int descriptor = -1);
struct Packet {
  std::string bytes;
  Fd descriptor;
};
// Unavailable when the other end has closed.
StatusOr<Packet> ReceivePacket(const Fd& fd, MonotonicTime deadline);
// True when the other end has closed and everything it sent was read. Never waits.
bool PeerClosed(const Fd& fd);

// "ADDRESS:PORT", "[v6]:PORT", with numeric addresses and names; "/PATH" of a unix socket, which is the host then.
struct Endpoint {
  std::string host;
  uint16_t port = 0;
};
StatusOr<Endpoint> ParseEndpoint(absl::string_view text);
std::string ToString(const Endpoint& endpoint);

// TCP. Sockets notice a broken link within 3 s (keep-alive and TCP_USER_TIMEOUT) and do not delay small messages.
// A name may have several addresses.

// Listens on the first of them that this host has. Port 0: one that is free, read with LocalEndpoint. AlreadyExists
// when the port is held. Unavailable: the name cannot be resolved, as in AwaitName.
StatusOr<Fd> ListenTcp(const Endpoint& endpoint);
// Tries all of them, again and again, until somebody accepts there. The name is resolved again now and then, also where
// it could not be. DeadlineExceeded says what the last attempt met.
StatusOr<Fd> ConnectTcp(const Endpoint& endpoint, MonotonicTime deadline);
// What ConnectTcp sets on its sockets, for accepted ones.
Status SetTcpOptions(const Fd& fd);
StatusOr<Endpoint> LocalEndpoint(const Fd& fd);
Status SetNonBlocking(const Fd& fd);

// All of `bytes`, within the deadline. Unavailable when the other end has closed.
Status SendAll(const Fd& fd, absl::string_view bytes, MonotonicTime deadline);
Status ReceiveAll(const Fd& fd, void* data, size_t size, MonotonicTime deadline);

// Waits until `fd` is ready for `events` (POLLIN, POLLOUT). DeadlineExceeded.
Status PollFor(const Fd& fd, short events, MonotonicTime deadline);

// The error of the system call of a socket that has just failed: the text of errno after `what`. AlreadyExists: the
// address is taken. PermissionDenied. Unavailable: the other end has closed, or IsBrokenLink. Internal: any other.
Status ErrnoStatus(absl::string_view what);
// Whether an error of a connection says that nothing gets through any more, and not that the other end has closed it.
bool IsBrokenLink(const Status& status);

// Waits until the name of `endpoint` can be resolved: that of a container is not known before the container runs.
// `news`, which may be null: gets a line every 3 s. DeadlineExceeded names the host. InvalidArgument: it is no name.
Status AwaitName(const Endpoint& endpoint, MonotonicTime deadline,
                 const std::function<void(const std::string& line)>& news);

// This host's address on the way to `endpoint`. Unavailable: the name cannot be resolved.
StatusOr<std::string> AddressTowards(const Endpoint& endpoint);

// The IPv4 address of network interface `name`, or the first address in subnet "a.b.c.d/len". NotFound lists the
// interfaces.
StatusOr<std::string> InterfaceAddress(absl::string_view name_or_subnet);

// The IPv4 addresses of the network interfaces that are up, with the length of their subnet, "10.0.0.1/24"; without
// loopback ones. The one on the default route comes first.
StatusOr<std::vector<std::string>> OwnAddresses();
// By which of `mine` hosts with the addresses `others` reach this one: the first in a subnet that each of them has an
// address in, else the first. Without any, NotFound.
StatusOr<std::string> CommonAddress(const std::vector<std::string>& mine,
                                    const std::vector<std::vector<std::string>>& others);

}  // namespace mslua
