// Where processes of one user meet on one host: a unix socket in a folder that nobody else can enter. The socket's name
// follows from the address that the start names (MS_SCHED_HOST=127.0.0.1 MS_SCHED_PORT=8117), so that all find it.
#pragma once

#include <sys/socket.h>

#include <memory>
#include <string>

#include "core/base/status.h"
#include "rendezvous/socket.h"

namespace mslua {

// The folder's name that stands for `endpoint`: one for all processes of this network namespace, whose loopback
// addresses are the same. "localhost", "127.0.0.1" and "::1" are one address here.
std::string MeetingName(const Endpoint& endpoint);
// A name that no other process has.
StatusOr<std::string> NewMeetingName();

// Whether `host` is an address that only this host can reach.
bool IsLoopback(const std::string& host);
// Whether `host` is an address of this host. False where it cannot be resolved.
bool IsOwnAddress(const std::string& host);

// A folder of this process, which others of its user can read: held by a lock, so that it is known whether its process
// lives, and removed with everything in it when destroyed.
class MeetingFolder {
 public:
  // Files that a killed process has left in the folder are still in it, but for its socket. AlreadyExists: a process
  // that lives holds it. PermissionDenied: MakeSocketFolder.
  static StatusOr<std::unique_ptr<MeetingFolder>> Make(const std::string& name);
  ~MeetingFolder() { Remove(); }
  // What the destructor does, for a process that may end without it.
  void Remove();
  // Listens on the folder's socket, of that type (SOCK_SEQPACKET where packets with descriptors must stay apart).
  StatusOr<Fd> Listen(int type = SOCK_STREAM) const;
  // Of the socket, whether it is there or not.
  std::string socket() const;
  const std::string& path() const { return path_; }

 private:
  MeetingFolder(std::string path, Fd lock) : path_(std::move(path)), lock_(std::move(lock)) {}
  const std::string path_;
  const Fd lock_;
  bool removed_ = false;
};

// The path of the folder of that name, and of its socket.
StatusOr<std::string> MeetingPath(const std::string& name);
std::string MeetingSocket(const std::string& folder);

// Whether a process that lives holds the folder at `path`.
bool IsHeld(const std::string& path);

// Connects to the socket at `path`. Unavailable: nobody listens there now. PermissionDenied: the folder, or the process
// that listens, is another user's. `type`: as for Listen.
StatusOr<Fd> ConnectMeeting(const std::string& path, int type = SOCK_STREAM);

// Removes the folders of this user's processes that were killed, but for the one named `but`.
void RemoveDeadMeetings(const std::string& but = "");

}  // namespace mslua
