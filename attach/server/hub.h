// Rank 0's side of attaching: who is attached and may do what, which ranks a line goes to, at which step all of them
// carry out a command, and one answer out of theirs.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "attach/server/agent.h"
#include "attach/server/command.h"
#include "attach/server/server.h"
#include "attach/server/training_view.h"
#include "core/base/clock.h"

namespace mslua::endpoint {

// Until a job continues that a client which has gone had paused.
inline constexpr absl::Duration kLease = absl::Seconds(2);
// For a rank to answer a snapshot: its control thread answers at once, or its process is stopped.
inline constexpr absl::Duration kAnswerLimit = absl::Seconds(2);

// Who has given a command.
struct Caller {
  uint64_t client = 0;
  int pid = 0;
};

class Hub {
 public:
  struct Outlet {
    std::function<void(int rank, RankMessage message)> tell;  // an agent
    std::function<void(uint64_t client, const std::string& id, const StatusOr<std::string>& answer)> reply;
    std::function<void(uint64_t client, const std::string& line)> event;  // client 0: all of them
    std::function<int()> clients;
  };

  // `boundary`: of this rank.
  Hub(const TrainingView& view, const Boundary& boundary, Outlet outlet)
      : view_(view), boundary_(boundary), outlet_(std::move(outlet)) {}

  // All on one thread.
  void OnLine(const Server::Line& line);
  void OnLeave(uint64_t client, bool on_purpose);
  void OnMessage(int from, const RankMessage& message);
  // Gives the time at which it is to be called next.
  MonotonicTime OnWake();
  // Training is over: what waits is answered so.
  void Close();

  // For the commands that the hub carries out itself.
  const TrainingView& view() const { return view_; }
  int clients() const { return outlet_.clients(); }
  int writer_pid() const { return writer_ == 0 ? 0 : writer_pid_; }  // who holds the writer lock; 0: nobody
  StatusOr<Answer> TakeLock(const Caller& caller);
  StatusOr<Answer> ReleaseLock(const Caller& caller);

 private:
  struct Task {
    uint64_t seq = 0, client = 0;
    uint64_t owner = 0;  // the client that the ranks hear of: the writer in place of the Lua that it runs at a rank
    std::string id;      // empty: nobody waits for the answer
    bool json = false, lua = false, forget = false;
    int pid = 0;
    std::string line;  // without "@ranks"
    Command command;   // unless Lua or forget
    std::vector<int> ranks;
    std::map<int, StatusOr<Answer>> answers;
    MonotonicTime began, deadline = MonotonicTime::InfiniteFuture();
    // Of a command of a boundary.
    int64_t step = 0, margin = 1;
    std::map<int, RankMessage> acks;
    bool agreed = false;
    // Of a client that has gone, when it went.
    bool paused_before = false;
    int64_t locks_taken = 0;
  };

  Status Choose(absl::string_view chosen, std::vector<int>* ranks) const;
  Status Check(const Task& task) const;
  Status Start(Task task);
  void Ask(Task task);
  void Enqueue(Task task);
  void ProposeNext();
  void Propose(Task& task);
  void OnAck(int from, const RankMessage& message);
  void OnLua(int from, const std::string& line);
  void OnAnswer(int from, const RankMessage& message);
  void GiveUp(Task& task, const std::string& why);
  void Finish(uint64_t seq);
  void Reply(const Task& task, const StatusOr<Answer>& answer);
  void EndPauseOfGone(const Task& forget);
  void ResumeForGone();

  const TrainingView& view_;
  const Boundary& boundary_;
  const Outlet outlet_;
  uint64_t next_seq_ = 1;
  std::map<uint64_t, Task> tasks_;
  std::deque<uint64_t> to_agree_;  // commands of boundaries, one of which is agreed on at a time
  MonotonicTime propose_again_ = MonotonicTime::InfiniteFuture();
  std::set<int> gone_;         // ranks whose training has ended
  std::set<uint64_t> owners_;  // clients that have watches, breaks or a pause to come
  int64_t agreed_step_ = 0;    // of the last command that was agreed on
  int64_t locks_taken_ = 0;    // how often a client has taken the writer lock
  uint64_t writer_ = 0;        // 0: nobody
  int writer_pid_ = 0;
  // The client that has given the lock back while the job was paused, or was to be by what it asked for, until another
  // one takes it.
  uint64_t left_paused_ = 0;
  MonotonicTime resume_at_ = MonotonicTime::InfiniteFuture();
};

}  // namespace mslua::endpoint
