// Lua that an attached user runs "at a rank". It runs in its own process beside the rank, with limits of time, memory
// and output, so that it cannot delay training. It reaches the rank by commands.
//
// The process is this program with the arguments kHelperArgument, the rank's number and the number of ranks. One end of
// a socket is its descriptor 3. Packets are ControlMessages: kCommand to it carries Lua to run ("line"), kCommand from
// it a command of ms.run; each is answered by a kReply.
#pragma once

#include <sys/types.h>

#include <deque>
#include <functional>
#include <mutex>
#include <string>

#include "absl/time/time.h"
#include "core/base/clock.h"
#include "core/base/status.h"
#include "rendezvous/control.h"
#include "rendezvous/socket.h"

namespace mslua::endpoint {

inline constexpr char kHelperArgument[] = "session-lua";
inline constexpr int kHelperDescriptor = 3;
// Of one evaluation, without the time that its commands take.
inline constexpr absl::Duration kHelperBudget = absl::Milliseconds(900);

class LuaHelper {
 public:
  struct Outlet {
    std::function<void(uint64_t client, const std::string& id, const StatusOr<std::string>& answer)> answer;
    std::function<void(const std::string& line)> command;  // of ms.run; to be answered by Reply
  };

  // Beside rank `rank` of `ranks`.
  LuaHelper(int rank, int ranks, Outlet outlet) : rank_(rank), ranks_(ranks), outlet_(std::move(outlet)) {}
  ~LuaHelper();

  // On one thread: runs `text` when the texts before it are done, and starts the process if there is none.
  void Evaluate(uint64_t client, const std::string& id, const std::string& text);
  // The descriptor to wait for, or -1; what to call when it is readable, and at the deadline.
  int fd() const { return socket_.get(); }
  void OnReadable();
  MonotonicTime deadline() const { return deadline_; }
  void OnDeadline();

  // Any thread: the answer to a command.
  void Reply(const StatusOr<std::string>& answer);

 private:
  struct Evaluation {
    uint64_t client;
    std::string id, text;
  };

  Status Start();
  void Begin();
  void Finish(const StatusOr<std::string>& answer);
  void Kill(const Status& why);

  const int rank_, ranks_;
  const Outlet outlet_;
  std::deque<Evaluation> waiting_;  // the first one runs
  MonotonicTime deadline_ = MonotonicTime::InfiniteFuture();
  absl::Duration left_;
  pid_t pid_ = 0;
  std::mutex mutex_;  // guards the socket's life
  Fd socket_;
};

}  // namespace mslua::endpoint
