#include "rendezvous/handshake.h"

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/base/authentication.h"
#include "core/base/printable.h"

namespace mslua {
namespace {

using Type = ControlMessage::Type;

constexpr size_t kNonceBytes = 32;
constexpr char kWrongSecret[] = "its job secret (MSLUA_JOB_SECRET_FILE) is not this job's";

// Each text behind its length: no two lists give the same bytes.
std::string Joined(std::initializer_list<absl::string_view> texts) {
  std::string joined;
  for (const absl::string_view text : texts) absl::StrAppend(&joined, text.size(), ":", text);
  return joined;
}

// HMAC of what `label` names, for a connection.
std::string Derive(absl::string_view secret, absl::string_view label, const ConnectionUse& use,
                   absl::string_view nonces) {
  return HmacSha256(secret,
                    Joined({"mslua 1", label, use.kind == ConnectionUse::Kind::kData ? "data" : "control", use.job,
                            absl::StrCat(use.epoch), absl::StrCat(use.from), absl::StrCat(use.to), nonces}));
}

ControlMessage Challenge(const ConnectionUse& use, const std::string& nonce) {
  ControlMessage message = {Type::kChallenge, {{"nonce", nonce}, {"use", "control"}}};
  if (use.kind == ConnectionUse::Kind::kControl) return message;
  message.fields["use"] = "data";
  message.fields["job"] = use.job;
  message.fields["epoch"] = absl::StrCat(use.epoch);
  message.fields["from"] = absl::StrCat(use.from);
  message.fields["to"] = absl::StrCat(use.to);
  return message;
}

bool ParseUse(const ControlMessage& message, ConnectionUse* use) {
  if (message.Field("nonce").size() != kNonceBytes) return false;
  if (message.Field("use") == "control") return true;
  use->kind = ConnectionUse::Kind::kData;
  use->job = message.Field("job");
  return message.Field("use") == "data" && absl::SimpleAtoi(message.Field("epoch"), &use->epoch) &&
         absl::SimpleAtoi(message.Field("from"), &use->from) && absl::SimpleAtoi(message.Field("to"), &use->to);
}

template <class Socket>
StatusOr<ControlMessage> Receive(Socket& socket, Seal& seal, MonotonicTime deadline) {
  std::string bytes(kControlHeaderBytes, 0);
  RETURN_IF_ERROR(ReceiveAll(socket, &bytes[0], bytes.size(), deadline));
  ASSIGN_OR_RETURN(const size_t body, ControlBodyBytes(bytes));
  const size_t message = kControlHeaderBytes + body;
  bytes.resize(message + seal.tag_bytes());
  RETURN_IF_ERROR(ReceiveAll(socket, &bytes[kControlHeaderBytes], bytes.size() - kControlHeaderBytes, deadline));
  const absl::string_view all(bytes);
  if (seal.tag_bytes() > 0) RETURN_IF_ERROR(seal.Check(all.substr(0, message), all.substr(message)));
  return DecodeControl(all.substr(0, message));
}

// What `dialler` is to send after the acceptor's challenge.
template <class Socket>
StatusOr<ControlMessage> Begin(Socket& socket, Dialler* dialler, MonotonicTime deadline) {
  Seal none;
  ASSIGN_OR_RETURN(const ControlMessage start, dialler->Start());
  RETURN_IF_ERROR(SendAll(socket, EncodeControl(start), deadline));
  ASSIGN_OR_RETURN(const ControlMessage challenge, Receive(socket, none, deadline));
  return dialler->Prove(challenge);
}

template <class Socket>
StatusOr<Seals> AuthenticateBy(Socket& socket, const std::string& secret, const ConnectionUse& use,
                               MonotonicTime deadline) {
  Dialler dialler(secret, use);
  Seal none;
  ASSIGN_OR_RETURN(const ControlMessage proof, Begin(socket, &dialler, deadline));
  RETURN_IF_ERROR(SendAll(socket, EncodeControl(proof), deadline));
  ASSIGN_OR_RETURN(const ControlMessage verdict, Receive(socket, none, deadline));
  return dialler.Finish(verdict);
}

}  // namespace

std::string Seal::Tag(absl::string_view message) {
  if (key_.empty()) return "";
  return HmacSha256(key_, Joined({absl::StrCat(next_++), message})).substr(0, tag_bytes());
}

Status Seal::Check(absl::string_view message, absl::string_view tag) {
  if (SameSecret(Tag(message), tag)) return absl::OkStatus();
  return absl::DataLossError("a control message was changed on its way: its authentication tag is wrong");
}

StatusOr<ControlMessage> Dialler::Start() {
  ASSIGN_OR_RETURN(nonces_, RandomBytes(kNonceBytes));
  return Challenge(use_, nonces_);
}

StatusOr<ControlMessage> Dialler::Prove(const ControlMessage& challenge) {
  if (challenge.type == Type::kRefuse) {
    return absl::PermissionDeniedError(absl::StrCat("refused: ", Printable(challenge.Field("reason"))));
  }
  const std::string nonce = challenge.Field("nonce");
  if (challenge.type != Type::kChallenge || nonce.size() != kNonceBytes) {
    return absl::DataLossError("the other end did not answer with a challenge");
  }
  nonces_ += nonce;
  return ControlMessage{Type::kProof, {{"proof", Derive(secret_, "dialler", use_, nonces_)}}};
}

StatusOr<Seals> Dialler::Finish(const ControlMessage& verdict) const {
  if (verdict.type == Type::kRefuse) {
    return absl::PermissionDeniedError(absl::StrCat("refused: ", Printable(verdict.Field("reason"))));
  }
  if (verdict.type != Type::kAccept) return absl::DataLossError("the other end did not answer the proof");
  if (!SameSecret(verdict.Field("proof"), Derive(secret_, "acceptor", use_, nonces_))) {
    return absl::PermissionDeniedError("the other end does not know the job secret (MSLUA_JOB_SECRET_FILE)");
  }
  return Seals{Seal(Derive(secret_, "key of the dialler", use_, nonces_)),
               Seal(Derive(secret_, "key of the acceptor", use_, nonces_))};
}

ControlMessage Acceptor::Refuse(const std::string& why) {
  state_ = State::kRefused;
  refused_ = why;
  return {Type::kRefuse, {{"reason", why}}};
}

ControlMessage Acceptor::Answer(const ControlMessage& message) {
  if (state_ == State::kNew) {
    if (message.type != Type::kChallenge || !ParseUse(message, &use_)) {
      return Refuse("it did not begin with a challenge of this version of mslua");
    }
    const std::string why = refusal_(use_);
    if (!why.empty()) return Refuse(why);
    const auto nonce = RandomBytes(kNonceBytes);
    if (!nonce.ok()) return Refuse(std::string(nonce.status().message()));
    nonces_ = absl::StrCat(message.Field("nonce"), *nonce);
    state_ = State::kChallenged;
    return {Type::kChallenge, {{"nonce", *nonce}}};
  }
  if (state_ != State::kChallenged || message.type != Type::kProof) {
    return Refuse("it did not answer the challenge with a proof");
  }
  if (!SameSecret(message.Field("proof"), Derive(secret_, "dialler", use_, nonces_))) return Refuse(kWrongSecret);
  state_ = State::kAccepted;
  return {Type::kAccept, {{"proof", Derive(secret_, "acceptor", use_, nonces_)}}};
}

Seals Acceptor::seals() const {
  return Seals{Seal(Derive(secret_, "key of the acceptor", use_, nonces_)),
               Seal(Derive(secret_, "key of the dialler", use_, nonces_))};
}

StatusOr<ControlMessage> ReceiveControl(const Fd& socket, Seal& seal, MonotonicTime deadline) {
  return Receive(socket, seal, deadline);
}

StatusOr<ControlMessage> ReceiveControl(Stream& stream, Seal& seal, MonotonicTime deadline) {
  return Receive(stream, seal, deadline);
}

std::string EncodeSealed(const ControlMessage& message, Seal& seal) {
  std::string bytes = EncodeControl(message);
  return absl::StrCat(bytes, seal.Tag(bytes));
}

StatusOr<Seals> Authenticate(const Fd& socket, const std::string& secret, const ConnectionUse& use,
                             MonotonicTime deadline) {
  return AuthenticateBy(socket, secret, use, deadline);
}

StatusOr<Seals> Authenticate(Stream& stream, const std::string& secret, const ConnectionUse& use,
                             MonotonicTime deadline) {
  return AuthenticateBy(stream, stream.Bound(secret), use, deadline);
}

Status AskWithoutSecret(const Fd& socket, MonotonicTime deadline) {
  Dialler dialler("", ConnectionUse());
  return Begin(socket, &dialler, deadline).status();
}

}  // namespace mslua
