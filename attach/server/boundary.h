// Commands that are carried out between two steps, on the training thread: pausing, watching, changing.
//
// Ranks that train together carry out each command at the same step: the hub proposes a number of steps done;
// a rank whose training has not come that far accepts, and there waits for the verdict; when all have accepted, the
// command is due there. While the ranks are paused - all at one step - what is agreed on is due at once.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "attach/server/command.h"
#include "attach/server/step_profile.h"
#include "attach/server/training_view.h"
#include "attach/server/watch.h"

namespace mslua::endpoint {

// What a command came to: text for people and, where there is one, a JSON object for programs.
struct Answer {
  std::string text, json;
};

struct Request {
  uint64_t seq = 0;  // the hub's name for it
  uint64_t client = 0;
  Command command;
  std::string who;      // "process 4102": for the record
  bool reports = true;  // what is watched or dumped is this rank's to tell
  bool told = false;    // the client has its answer already, and what comes is an event
};

// What a rank says to a proposal.
struct Ack {
  bool accepted = false;
  int64_t step = 0;  // that its training has done
  std::string why;   // not empty: it will never accept, since training has ended
};

// Carries out `.set lr=0.1`, or `lr=schedule`, from the next step on.
StatusOr<Answer> ApplySet(Trainer& trainer, const std::string& assignment);

class Boundary : public BoundaryListener {
 public:
  // Any thread may be told: the answer to a request; a line for one client, or for all (client 0).
  struct Outlet {
    std::function<void(const Request& request, const StatusOr<Answer>& answer)> answer;
    std::function<void(uint64_t client, const std::string& line)> event;
    // This rank leaves the pause after so many steps by itself, being asked to stop: the others should too.
    std::function<void(int64_t step)> leaves;
  };

  Boundary(const TrainingView& view, Outlet outlet);
  ~Boundary() override;
  Boundary(const Boundary&) = delete;
  Boundary& operator=(const Boundary&) = delete;

  // Any thread: queues a command that is no snapshot, to be carried out after `step` steps, or moves one that is queued
  // and undecided. Accepted while training has not done so many.
  Ack Propose(Request request, int64_t step);
  // Any thread: all ranks have accepted, or the command is dropped.
  void Decide(uint64_t seq, bool agreed);
  // Any thread: a pause after at most so many steps, also one to come, ends.
  void Release(int64_t step);
  bool paused() const;
  // On the training thread, after a step: the number of a break that is hit here, from 1, or 0; the clients are told.
  int32_t BreakHit(const TrainState& state);
  // On the training thread of all ranks, when break `hit` is hit on one of them: removes the break and pauses at the
  // next boundary. Internal: this rank has no break of that number.
  Status PauseNext(const TrainState& state, int32_t hit);
  // Any thread: "watch Net/relu every 5", one a line.
  std::string Watches() const;
  // Training is over: what waits is answered so.
  void Close();

  Status AtBoundary(const TrainState& state) override;
  StatusOr<bool> AtLoss(const TrainState& state, bool bad) override;

 private:
  struct Watch {
    uint64_t client;
    Named named;
    int64_t every, left;
    bool reports;
  };
  struct Break {
    uint64_t client;
    std::string text;
    enum class Kind { kNan, kAbove, kBelow, kStep } kind;
    double limit;
  };
  // A gradient or an activation that somebody asked for once.
  struct Once {
    Request request;
    Named named;
    int64_t from;  // to be answered after more steps than this
  };

  struct Waiting {
    Request request;
    int64_t step;
    enum class Verdict { kNone, kAgreed, kDropped } verdict;
  };

  using Lock = std::unique_lock<std::mutex>;
  bool Due(const Waiting& w, const TrainState& state) const;
  void AwaitVerdict(uint64_t seq, int64_t step, Lock& lock);
  void Carry(const Request& request, const TrainState& state);
  void RunDue(const TrainState& state, Lock& lock);
  StatusOr<Answer> Execute(const Request& request, const TrainState& state, bool* later);
  StatusOr<Answer> Show(const Request& request, const TrainState& state, bool* later);
  StatusOr<Answer> AnswerValue(const Request& request, const Named& named, int64_t step);
  StatusOr<Answer> AddWatch(const Request& request);
  Answer Forget(uint64_t client);
  StatusOr<Answer> Save(const Command& command);
  StatusOr<Answer> RemoveWatch(const Request& request);
  StatusOr<Answer> AddBreak(const Request& request);
  StatusOr<Answer> Step(const Request& request, const TrainState& state, bool* later);
  StatusOr<Answer> BeginProfile(const Request& request, bool* later);
  void AddToProfile(const TrainState& state);
  StatusOr<Answer> FinishProfile(const TrainState& state);
  void ReportWatches(const TrainState& state);
  int32_t FindHit(const TrainState& state) const;
  void CountNanBreaks();
  void ReportPause(const TrainState& state);
  void GoOn();
  Status ShowWanted();
  void Wait(const TrainState& state, Lock& lock, bool bad_loss);
  void Record(const Request& request, int64_t step);
  bool Busy() const;

  const TrainingView& view_;
  const Outlet outlet_;
  std::unique_ptr<RecordFile> events_;  // null: nothing is recorded

  std::atomic<bool> nan_breaks_{false};  // whether there are any, to be looked at after each step
  mutable std::mutex mutex_;  // guards all below; held by the training thread at a boundary but while it waits
  std::condition_variable changed_;
  std::unique_ptr<Watched> watched_;
  std::vector<Waiting> waiting_;
  std::vector<Watch> watches_;
  std::vector<Break> breaks_;
  std::vector<Once> once_;
  std::unique_ptr<StepProfile> profile_;  // null: no step is measured
  Request profile_request_;
  bool paused_ = false, closed_ = false;
  bool bad_loss_ = false;          // paused in a step whose loss is NaN
  int64_t released_ = -1;          // pauses up to that step end
  int64_t pause_at_ = -1;          // .step: steps done
  std::vector<Request> on_pause_;  // to be answered then
  int64_t seen_step_ = -1;
};

}  // namespace mslua::endpoint
