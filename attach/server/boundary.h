// Commands that are carried out between two steps, on the training thread: pausing, watching, changing.
//
// Ranks that train together carry out each command at the same step: the hub proposes a number of steps done;
// a rank whose training has not come that far accepts, and there waits for the verdict; when all have accepted, the
// command is due there. While the ranks are paused - all at one step - what is agreed on is due at once.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "attach/server/command.h"
#include "attach/server/steering.h"
#include "attach/server/training_view.h"
#include "core/files/record_file.h"

namespace mslua::endpoint {

// What a rank says to a proposal.
struct Ack {
  bool accepted = false;
  int64_t step = 0;  // the last one after which its training does nothing more that it is asked now
  std::string why;   // not empty: it will never accept, since training has ended
};

class Boundary : public BoundaryListener {
 public:
  // `outlet`: its functions may be called on any thread.
  Boundary(const TrainingView& view, Outlet outlet);
  ~Boundary() override;
  Boundary(const Boundary&) = delete;
  Boundary& operator=(const Boundary&) = delete;

  // On the training thread, before its first step: says when what the trainer was asked for in an earlier process, or
  // run, is done.
  void TakeUp();
  // Any thread: queues a command that is no snapshot, to be carried out after `step` steps, or moves one that is queued
  // and undecided. Accepted while training has not done so many.
  Ack Propose(Request request, int64_t step);
  // Any thread: all ranks have accepted, or the command is dropped.
  void Decide(uint64_t seq, bool agreed);
  // Any thread: a pause after at most so many steps, also one to come, ends. What all ranks have agreed on before is
  // carried out in it, what they agree on later is not: rank 0 tells each rank of both in one order.
  void Release(int64_t step);
  bool paused() const;
  // On the training thread, after a step, and again at an epoch's end: the number of a break that the step hits here,
  // from 1, or 0; the clients are told.
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
  struct Waiting {
    Request request;
    int64_t step;
    enum class Verdict { kNone, kAgreed, kDropped } verdict;
    bool before_release = false;  // it was agreed on before the pause was to end
  };

  using Lock = std::unique_lock<std::mutex>;
  bool Due(const Waiting& w, const TrainState& state) const;
  void AwaitVerdict(uint64_t seq, int64_t step, Lock& lock);
  void Carry(const Request& request, const TrainState& state);
  void RunDue(const TrainState& state, Lock& lock);
  int32_t FindHit(const TrainState& state) const;
  void Wait(const TrainState& state, Lock& lock);
  void Record(const Request& request, int64_t step);

  const TrainingView& view_;
  const Outlet outlet_;
  std::unique_ptr<RecordFile> events_;  // null: nothing is recorded

  mutable std::mutex mutex_;  // guards all below; held by the training thread at a boundary but while it waits
  std::condition_variable changed_;
  Steering steering_;
  std::vector<Waiting> waiting_;
  bool closed_ = false;
  int64_t released_ = -1;  // pauses up to that step end
  int64_t seen_step_ = -1;
  int64_t judged_step_ = -1;  // by BreakHit
};

}  // namespace mslua::endpoint
