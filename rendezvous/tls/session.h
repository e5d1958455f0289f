// A TLS connection over a connected socket. No call waits, whatever the socket's own mode is.
//
// After the handshake of TLS each end tells the other its verdict, the accepting end first: an empty text, or why it
// refuses the other. So both ends know the reason, and a session that is ready is one that both ends have accepted.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "absl/strings/string_view.h"
#include "core/base/status.h"

struct ssl_st;

namespace mslua {

struct TlsSocket;

// Reads and writes may be called by two threads at the same time.
class TlsSession {
 public:
  // Why the peer, whose chain of certificates is good, is refused; empty: it is accepted.
  using Verdict = std::function<std::string(TlsSession& session)>;

  // Takes over `ssl`, which is set to accept or to connect and has no socket. `fd` stays the caller's and outlives
  // this. `on_end` is called when this ends, before anything of it does.
  TlsSession(ssl_st* ssl, int fd, Verdict verdict, std::function<void(TlsSession&)> on_end = {});
  ~TlsSession();
  TlsSession(const TlsSession&) = delete;
  TlsSession& operator=(const TlsSession&) = delete;

  // Does what can be done now of the handshake and the verdicts. OK with ready(): it is over. OK without: call again
  // when the socket is ready for wants(). PermissionDenied: one end refuses the other, and why. Unavailable: the other
  // end has closed the connection, or it broke.
  Status Handshake();
  bool ready() const { return phase_ == Phase::kReady; }
  // POLLIN or POLLOUT: what the handshake waits for.
  short wants() const { return wants_; }

  // As recv and send: bytes; 0: the other end has closed; -1 with errno: EAGAIN (try again when the socket is ready),
  // EPROTO (broken() says why), or another error of the socket. Only once ready().
  ssize_t Read(void* to, size_t size);
  // The next Write after EAGAIN begins with the same bytes; until then MidWrite().
  ssize_t Write(const iovec* parts, int n);
  // Whether bytes may be there that poll does not know of.
  bool Pending() const { return pending_; }
  bool MidWrite() const { return mid_write_; }
  // Ends the connection: further calls give EPROTO, for this reason.
  void Break(const Status& why);
  // The same, and wakes the threads that wait for the socket.
  void BreakAndWake(const Status& why);
  // From now on that ends reading alone: who owns the session can still write why, and then ends it.
  void KeepLastWord();
  // OK; or why there is no connection any more. DataLoss: bytes were changed on their way.
  Status broken() const;

  // 32 bytes that both ends, and nobody else, know. Only once ready().
  std::string SharedKey() const;
  const ssl_st* ssl() const { return ssl_; }

  // For the verification of the peer's chain: why it fails.
  void NoteVerifyError(const std::string& why) { verify_error_ = why; }
  static TlsSession* Of(const ssl_st* ssl);

 private:
  enum class Phase { kHandshake, kSendVerdict, kReceiveVerdict, kSendLast, kReady, kFailed };
  Status Shake();
  Status SendVerdict();
  Status ReceiveVerdict();
  // The error of an operation that gave `result`; OK: it is to be repeated when the socket is ready for wants_.
  Status Problem(int result);
  // As Problem, for Read and Write: what they return.
  ssize_t Outcome(int result);
  Status Fail(Status why);
  bool HasPending() const;

  ssl_st* const ssl_;
  const std::unique_ptr<TlsSocket> socket_;
  const Verdict verdict_;
  const std::function<void(TlsSession&)> on_end_;
  const bool accepts_;
  Phase phase_ = Phase::kHandshake;
  Status failed_;
  std::string verify_error_;
  std::string mine_, theirs_;  // verdicts as they are sent: length, text
  short wants_ = 0;
  mutable std::mutex mutex_;  // of what follows, and of ssl_ once ready
  bool pending_ = false, mid_write_ = false;
  Status broken_;
  bool keeps_last_word_ = false, sends_last_word_ = false;
};

}  // namespace mslua
