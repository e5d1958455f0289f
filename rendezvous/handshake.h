// How the two ends of a TCP connection prove to each other that they know the job's secret. Pure functions over
// messages: what moves them is in admission.h (the end that accepts) and Authenticate (the end that dials).
//
//   dialler                                     acceptor
//   kChallenge {use, nonce D}      ->
//                                  <-           kChallenge {nonce A}
//   kProof {proof of the dialler}  ->
//                                  <-           kAccept {proof of the acceptor}, or kRefuse {reason}
//
// A proof is an HMAC-SHA-256 under the secret of: which end makes it, what the connection is for, and both nonces. So a
// proof cannot be sent back to who made it, nor used for another connection, rank, job or epoch. Both ends derive a key
// for each direction; Seal authenticates messages with it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/strings/string_view.h"
#include "core/base/status.h"
#include "rendezvous/control.h"
#include "rendezvous/socket.h"
#include "rendezvous/stream.h"

namespace mslua {

// What a connection is for; both ends mean the same, or there is none.
struct ConnectionUse {
  enum class Kind : uint8_t { kControl, kData };
  Kind kind = Kind::kControl;
  // Of data connections only: the job, the membership's epoch, the rank that dials and the one that accepts.
  std::string job;
  uint32_t epoch = 0;
  int from = -1, to = -1;
};

// Authenticates the messages of one direction of a connection: order, number and contents.
class Seal {
 public:
  Seal() = default;  // of a connection that needs none: tags are empty
  explicit Seal(std::string key) : key_(std::move(key)) {}
  // Bytes of a tag, 0 or 16.
  size_t tag_bytes() const { return key_.empty() ? 0 : 16; }
  // Of the next message that is sent.
  std::string Tag(absl::string_view message);
  // Of the next message that has come. DataLoss: it is not what the other end sent next.
  Status Check(absl::string_view message, absl::string_view tag);

 private:
  std::string key_;
  uint64_t next_ = 0;
};
struct Seals {
  Seal send, receive;
};

class Dialler {
 public:
  Dialler(std::string secret, ConnectionUse use) : secret_(std::move(secret)), use_(std::move(use)) {}
  // The first message. Unavailable: no random numbers.
  StatusOr<ControlMessage> Start();
  // The answer to the acceptor's challenge.
  StatusOr<ControlMessage> Prove(const ControlMessage& challenge);
  // PermissionDenied: the acceptor refuses, or does not know the secret.
  StatusOr<Seals> Finish(const ControlMessage& verdict) const;

 private:
  const std::string secret_;
  const ConnectionUse use_;
  std::string nonces_;
};

class Acceptor {
 public:
  // Why a connection for that is not wanted; empty: it is.
  using Refusal = std::function<std::string(const ConnectionUse& use)>;
  Acceptor(std::string secret, Refusal refusal) : secret_(std::move(secret)), refusal_(std::move(refusal)) {}
  // The answer to the next message: kChallenge, then kAccept, or kRefuse, after which the connection is to be closed.
  ControlMessage Answer(const ControlMessage& message);
  bool accepted() const { return state_ == State::kAccepted; }
  // Why it was refused.
  const std::string& refused() const { return refused_; }
  // What the connection is for; once accepted.
  const ConnectionUse& use() const { return use_; }
  Seals seals() const;

 private:
  enum class State { kNew, kChallenged, kAccepted, kRefused };
  ControlMessage Refuse(const std::string& why);

  const std::string secret_;
  const Refusal refusal_;
  State state_ = State::kNew;
  ConnectionUse use_;
  std::string nonces_, refused_;
};

// The dialling end on a connected socket. PermissionDenied: refused, with the acceptor's reason, or the acceptor does
// not know the secret. Unavailable: closed before the end. DeadlineExceeded. DataLoss: it does not speak this protocol.
StatusOr<Seals> Authenticate(const Fd& socket, const std::string& secret, const ConnectionUse& use,
                             MonotonicTime deadline);
// The same on a stream; under TLS the proofs hold for this connection only, and `secret` may be empty.
StatusOr<Seals> Authenticate(Stream& stream, const std::string& secret, const ConnectionUse& use,
                             MonotonicTime deadline);

// Begins as Authenticate does and ends before the proof, on a socket that is to be closed then: a process that does not
// know the secret yet learns whether it is refused. PermissionDenied: it is, with the acceptor's reason. Other errors
// as those of Authenticate.
Status AskWithoutSecret(const Fd& socket, MonotonicTime deadline);

// One message from a socket, with its tag.
StatusOr<ControlMessage> ReceiveControl(const Fd& socket, Seal& seal, MonotonicTime deadline);
StatusOr<ControlMessage> ReceiveControl(Stream& stream, Seal& seal, MonotonicTime deadline);
// As it is sent.
std::string EncodeSealed(const ControlMessage& message, Seal& seal);

}  // namespace mslua
