#include "attach/client/connection.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "attach/server/server.h"
#include "core/base/clock.h"
#include "core/base/printable.h"

namespace mslua::repl {
namespace {

constexpr size_t kPacketBytes = (64 << 10) + kControlHeaderBytes;

}  // namespace

StatusOr<std::unique_ptr<Connection>> Connection::Attach(const endpoint::Job& job, int rank, absl::Duration limit) {
  const MonotonicTime deadline = MonotonicNow() + limit;
  ASSIGN_OR_RETURN(const std::string token, endpoint::ReadToken(job));
  std::unique_ptr<Connection> c(new Connection(job, rank));
  ASSIGN_OR_RETURN(c->socket_, ConnectUnix(job.SocketOf(rank), deadline));
  ASSIGN_OR_RETURN(const ControlMessage challenge, c->Receive(deadline));
  if (challenge.type == ControlMessage::Type::kRefuse)
    return absl::ResourceExhaustedError(Printable(challenge.Field("why")));
  if (challenge.type != ControlMessage::Type::kChallenge) return absl::DataLossError("no challenge came");
  RETURN_IF_ERROR(
      c->Send({ControlMessage::Type::kProof, {{"proof", endpoint::ProofOf(token, challenge.Field("nonce"))}}}));
  ASSIGN_OR_RETURN(const ControlMessage verdict, c->Receive(deadline));
  if (verdict.type != ControlMessage::Type::kAccept)
    return absl::PermissionDeniedError(absl::StrCat("refused: ", Printable(verdict.Field("why"))));
  c->greeting_ = verdict.fields;
  return c;
}

Connection::~Connection() {
  if (socket_) (void)Send({ControlMessage::Type::kLeave, {}});
}

Status Connection::Send(const ControlMessage& message) {
  const std::string packet = EncodeControl(message);
  if (packet.size() > kPacketBytes) return absl::InvalidArgumentError("the line is too long");
  if (send(socket_.get(), packet.data(), packet.size(), MSG_NOSIGNAL) < 0)
    return absl::UnavailableError("the job has ended");
  return absl::OkStatus();
}

StatusOr<ControlMessage> Connection::Receive(MonotonicTime deadline) {
  if (!PollFor(socket_, POLLIN, deadline).ok()) return absl::NotFoundError("no answer came in time");
  std::string packet(kPacketBytes, 0);
  const ssize_t size = recv(socket_.get(), &packet[0], packet.size(), MSG_DONTWAIT);
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return absl::NotFoundError("no answer came in time");
  if (size <= 0) return absl::UnavailableError("the job has ended");
  auto message = DecodeControl(absl::string_view(packet.data(), static_cast<size_t>(size)));
  over_ = message.ok() && message->type == ControlMessage::Type::kLeave;
  if (over_) return absl::UnavailableError("the job has ended");
  return message;
}

Status Connection::TakeUpAgain(absl::Duration limit) {
  constexpr absl::Duration kLook = absl::Milliseconds(100);
  const Status ended = absl::UnavailableError("the job has ended");
  if (over_ || ControlMessage{{}, greeting_}.Field("recovers") != "1" || job_.run.empty()) return ended;
  const MonotonicTime until = MonotonicNow() + limit;
  for (; MonotonicNow() < until; absl::SleepFor(kLook)) {
    if (interrupted()) return absl::AbortedError("interrupted");
    const auto jobs = endpoint::ListJobs();
    if (!jobs.ok()) continue;
    for (const endpoint::Job& job : *jobs) {
      if (job.run != job_.run || job.id == job_.id) continue;
      auto next = Attach(job, rank_, kLook * 10);
      if (!next.ok() || dup2((*next)->socket_.get(), socket_.get()) < 0) continue;
      (*next)->socket_.Close();
      job_ = job;
      greeting_ = (*next)->greeting_;
      return absl::OkStatus();
    }
  }
  return ended;
}

StatusOr<std::string> Connection::Call(absl::string_view line, bool json, absl::Duration limit) {
  const MonotonicTime until = MonotonicNow() + limit;
  const std::string id = absl::StrCat(next_id_++);
  RETURN_IF_ERROR(
      Send({ControlMessage::Type::kCommand, {{"id", id}, {"line", std::string(line)}, {"json", json ? "1" : "0"}}}));
  std::string text;
  while (true) {
    const auto message = Receive(MonotonicNow() + absl::Milliseconds(200));
    if (absl::IsNotFound(message.status())) {
      if (interrupted()) return absl::AbortedError("interrupted");
      if (MonotonicNow() > until) return absl::DeadlineExceededError("does not answer");
      continue;
    }
    RETURN_IF_ERROR(message.status());
    if (message->type == ControlMessage::Type::kEvent) on_event(message->Field("text"));
    if (message->type == ControlMessage::Type::kRefuse)
      return absl::PermissionDeniedError(absl::StrCat("refused: ", message->Field("why")));
    if (message->type != ControlMessage::Type::kReply || message->Field("id") != id) continue;
    text += message->Field("text");
    const std::string end = message->Field("end");
    if (end == "ok") return text;
    if (!end.empty()) return absl::FailedPreconditionError(text);
  }
}

bool Connection::Poll() {
  while (true) {
    const auto message = Receive(MonotonicNow());
    if (absl::IsNotFound(message.status())) return true;
    if (!message.ok()) return false;
    if (message->type == ControlMessage::Type::kEvent) on_event(message->Field("text"));
  }
}

}  // namespace mslua::repl
