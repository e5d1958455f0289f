#include "attach/server/lua_helper.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/clock.h"

namespace mslua::endpoint {
namespace {

constexpr size_t kPacketBytes = (64 << 10) + kControlHeaderBytes;
constexpr size_t kMostAnswer = 60 << 10;

bool Send(int fd, const ControlMessage& message) {
  const std::string packet = EncodeControl(message);
  return send(fd, packet.data(), packet.size(), MSG_NOSIGNAL | MSG_DONTWAIT) >= 0;
}

}  // namespace

LuaHelper::~LuaHelper() {
  waiting_.clear();
  Kill(absl::CancelledError(""));
}

Status LuaHelper::Start() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    return absl::UnavailableError(absl::StrCat("socketpair: ", std::strerror(errno)));
  const Fd theirs(ends[1]);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    socket_ = Fd(ends[0]);
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  for (int fd = 0; fd < kHelperDescriptor; ++fd)
    posix_spawn_file_actions_addopen(&actions, fd, "/dev/null", fd == 0 ? O_RDONLY : O_WRONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, theirs.get(), kHelperDescriptor);
  posix_spawn_file_actions_addclosefrom_np(&actions, kHelperDescriptor + 1);
  char program[] = "mslua", threads[] = "OMP_NUM_THREADS=1";
  std::string argument = kHelperArgument, rank = absl::StrCat(rank_), ranks = absl::StrCat(ranks_);
  char* const arguments[] = {program, argument.data(), rank.data(), ranks.data(), nullptr};
  char* const environment[] = {threads, nullptr};
  const int error = posix_spawn(&pid_, "/proc/self/exe", &actions, nullptr, arguments, environment);
  posix_spawn_file_actions_destroy(&actions);
  if (error == 0) return absl::OkStatus();
  pid_ = 0;
  const std::lock_guard<std::mutex> lock(mutex_);
  socket_.Close();
  return absl::UnavailableError(absl::StrCat("cannot start a process for Lua: ", std::strerror(error)));
}

void LuaHelper::Evaluate(uint64_t client, const std::string& id, const std::string& text) {
  waiting_.push_back({client, id, text});
  if (waiting_.size() == 1) Begin();
}

// The first that waits.
void LuaHelper::Begin() {
  while (!waiting_.empty()) {
    Status started = socket_ ? absl::OkStatus() : Start();
    if (started.ok() && !Send(socket_.get(), {ControlMessage::Type::kCommand, {{"line", waiting_.front().text}}}))
      started = absl::UnavailableError("the process for Lua takes no more");
    if (started.ok()) {
      // A fresh process needs a moment before it can begin; it says when.
      left_ = kHelperBudget;
      deadline_ = MonotonicNow() + absl::Seconds(10);
      return;
    }
    const Evaluation failed = std::move(waiting_.front());
    waiting_.pop_front();
    outlet_.answer(failed.client, failed.id, started);
  }
  deadline_ = MonotonicTime::InfiniteFuture();
}

void LuaHelper::Finish(const StatusOr<std::string>& answer) {
  if (waiting_.empty()) return;
  const Evaluation done = std::move(waiting_.front());
  waiting_.pop_front();
  outlet_.answer(done.client, done.id, answer);
  Begin();
}

void LuaHelper::Kill(const Status& why) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    socket_.Close();
  }
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }
  deadline_ = MonotonicTime::InfiniteFuture();
  Finish(why);
}

void LuaHelper::OnDeadline() {
  if (MonotonicNow() < deadline_) return;
  Kill(absl::DeadlineExceededError(
      absl::StrCat("ended after ", absl::FormatDuration(kHelperBudget), ", the time that Lua at a rank may take")));
}

void LuaHelper::OnReadable() {
  std::string packet(kPacketBytes, 0);
  const ssize_t size = recv(socket_.get(), &packet[0], packet.size(), MSG_DONTWAIT);
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
  const auto message = size > 0 ? DecodeControl(absl::string_view(packet.data(), static_cast<size_t>(size)))
                                : StatusOr<ControlMessage>(absl::UnavailableError(""));
  if (!message.ok())
    return Kill(absl::ResourceExhaustedError("the process for Lua has died: it ran out of memory or time"));
  if (message->type == ControlMessage::Type::kAccept) {
    deadline_ = MonotonicNow() + left_;
  } else if (message->type == ControlMessage::Type::kCommand) {
    left_ = deadline_ - MonotonicNow();
    deadline_ = MonotonicTime::InfiniteFuture();
    outlet_.command(message->Field("line"));
  } else if (message->type == ControlMessage::Type::kReply) {
    if (message->Field("end") == "ok")
      Finish(message->Field("text"));
    else
      Finish(absl::InvalidArgumentError(message->Field("text")));
  }
}

void LuaHelper::Reply(const StatusOr<std::string>& answer) {
  const std::string text = answer.ok() ? *answer : std::string(answer.status().message());
  const std::lock_guard<std::mutex> lock(mutex_);
  if (socket_) {
    Send(socket_.get(), {ControlMessage::Type::kReply,
                         {{"text", text.substr(0, kMostAnswer)}, {"end", answer.ok() ? "ok" : "error"}}});
  }
}

}  // namespace mslua::endpoint
