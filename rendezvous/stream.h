// A connection to a process of the job: a socket, with TLS on it or without. Without, it does what the socket does.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "core/base/clock.h"
#include "core/base/status.h"
#include "rendezvous/socket.h"
#include "rendezvous/tls/session.h"
#include "rendezvous/tls/tls.h"

namespace mslua {

// One thread may read while another writes.
class Stream {
 public:
  Stream() = default;
  Stream(Fd fd) : fd_(std::move(fd)) {}  // NOLINT: a socket is a stream without TLS
  // The session is of this socket.
  Stream(Fd fd, std::unique_ptr<TlsSession> tls) : fd_(std::move(fd)), tls_(std::move(tls)) {}
  Stream(Stream&&) = default;
  Stream& operator=(Stream&& other) noexcept {
    Close();
    fd_ = std::move(other.fd_);
    tls_ = std::move(other.tls_);
    return *this;
  }
  ~Stream() { Close(); }

  explicit operator bool() const { return static_cast<bool>(fd_); }
  // To poll, to name the peer, to shut down; never to read or to write.
  const Fd& fd() const { return fd_; }
  void Close();
  // Puts TLS on the socket: only the handshake may follow.
  void Encrypt(std::unique_ptr<TlsSession> tls) { tls_ = std::move(tls); }
  bool encrypted() const { return tls_ != nullptr; }

  // The handshake of TLS, as TlsSession::Handshake; without TLS there is none.
  Status Handshake() { return tls_ == nullptr ? absl::OkStatus() : tls_->Handshake(); }
  bool ready() const { return tls_ == nullptr || tls_->ready(); }
  // What to poll for until the handshake can continue.
  short wants() const;

  // As recv and send with MSG_DONTWAIT, for as many bytes as go at once. Problem() says what an error was.
  ssize_t Read(void* to, size_t size);
  ssize_t Write(const iovec* parts, int n);
  // Whether bytes may be there that poll does not know of: to be read before anyone polls.
  bool Pending() const { return tls_ != nullptr && tls_->Pending(); }
  // Part of what was given to Write last is on its way, and the next Write has to begin with it.
  bool MidWrite() const { return tls_ != nullptr && tls_->MidWrite(); }
  // What the call that has just failed says (errno), in words.
  std::string ErrorText() const;
  // The same as an error, after `what`. PermissionDenied: the peer's certificate was
  // revoked. DataLoss: bytes were changed on their way.
  Status Problem(absl::string_view what) const;
  // A peer whose certificate is revoked can still be told so: until this closes.
  void KeepLastWord() {
    if (tls_ != nullptr) tls_->KeepLastWord();
  }
  // After a message that has been sent in part: nothing more may follow it under TLS.
  void Break(const Status& why);

  // `secret`, bound to this connection under TLS; proofs that use it hold for no other connection. May be empty then.
  std::string Bound(const std::string& secret) const;

 private:
  Fd fd_;
  std::unique_ptr<TlsSession> tls_;  // ends before the socket
};

// Connects by TCP as ConnectTcp does and, with `tls`, does the handshake. Besides its errors: PermissionDenied, one end
// refuses the other; Unavailable, the connection ended in the handshake.
StatusOr<Stream> ConnectStream(const Endpoint& endpoint, Tls* tls, MonotonicTime deadline);

// As for sockets (socket.h).
Status SendAll(Stream& stream, absl::string_view bytes, MonotonicTime deadline);
Status ReceiveAll(Stream& stream, void* data, size_t size, MonotonicTime deadline);
// Until there is something to read, in the socket or in the session.
Status AwaitInput(const Stream& stream, MonotonicTime deadline);

}  // namespace mslua
