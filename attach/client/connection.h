// A client's side of a rank's endpoint.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "attach/server/job_folder.h"
#include "core/base/clock.h"
#include "core/base/status.h"
#include "rendezvous/control.h"
#include "rendezvous/socket.h"

namespace mslua::repl {

class Connection {
 public:
  // Connects to a rank of `job` and proves that this user may. PermissionDenied, ResourceExhausted: refused, with the
  // reason.
  static StatusOr<std::unique_ptr<Connection>> Attach(const endpoint::Job& job, int rank, absl::Duration limit);
  ~Connection();  // says that it leaves on purpose

  // What the rank said of itself: "job", "name", "rank", "ranks", "run", "started", "recovers", "job_epoch".
  const std::map<std::string, std::string>& greeting() const { return greeting_; }
  const endpoint::Job& job() const { return job_; }

  // Sends a command and waits for its answer; events that come meanwhile go to on_event. Unavailable: the job has
  // ended. Aborted: `interrupted` said so; DeadlineExceeded: nothing came in time; the answer will be dropped when it
  // comes.
  StatusOr<std::string> Call(absl::string_view line, bool json, absl::Duration limit = absl::InfiniteDuration());
  // Takes the events that are there; false when the job has ended. Never waits.
  bool Poll();
  int fd() const { return socket_.get(); }
  // When the connection was lost, and not ended by the job, which starts again by itself: waits for that and connects
  // to the same rank; fd() stays. The greeting is the new one; what the job knew of this client is gone. Unavailable:
  // the job has ended, or does not come within `limit`; Aborted: `interrupted` said so.
  Status TakeUpAgain(absl::Duration limit);

  std::function<void(const std::string& line)> on_event = [](const std::string&) {};
  std::function<bool()> interrupted = [] { return false; };

 private:
  Connection(const endpoint::Job& job, int rank) : job_(job), rank_(rank) {}
  Status Send(const ControlMessage& message);
  // The next message; NotFound when none comes in time.
  StatusOr<ControlMessage> Receive(MonotonicTime deadline);

  endpoint::Job job_;
  const int rank_;
  Fd socket_;
  bool over_ = false;  // the job has said so
  std::map<std::string, std::string> greeting_;
  uint64_t next_id_ = 1;
};

}  // namespace mslua::repl
