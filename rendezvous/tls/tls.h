// The TLS of a process: its configuration, certificates and the sessions made with them.
//
// Both ends of every connection show a certificate. The files are looked at again before a handshake, at most once a
// second: a set that has changed and is good takes the place of the one before; one that is not is told, and the one
// before stays. A list of revoked certificates takes effect even where it names this end's own.
#pragma once

#include <memory>
#include <string>

#include "core/base/status.h"
#include "rendezvous/tls/names.h"
#include "rendezvous/tls/options.h"
#include "rendezvous/tls/session.h"

namespace mslua {

// Any thread may call.
class Tls {
 public:
  // Reads and checks everything, this end's own certificates first, so that a mistake is named where it lies.
  // InvalidArgument, NotFound, PermissionDenied: one line that names the file and the field.
  static StatusOr<std::shared_ptr<Tls>> Load(const TlsOptions& options);
  virtual ~Tls() = default;

  // A session on a socket that has connected to `host`, the name or the address that was dialled; or that was accepted.
  // It may outlive this.
  virtual StatusOr<std::unique_ptr<TlsSession>> Dial(int fd, const std::string& host) = 0;
  virtual StatusOr<std::unique_ptr<TlsSession>> Accept(int fd, PeerIs peer = PeerIs::kMember) = 0;
  // To be called every now and then, also without handshakes: warns daily of certificates that expire soon, and ends
  // sessions whose peers have been revoked. At most once a second does it do anything.
  virtual void Refresh() = 0;
};

}  // namespace mslua
