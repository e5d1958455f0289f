// Commands that are carried out between two steps, on the training thread: pausing, watching, changing.
#pragma once

#include <condition_variable>
#include <cstdio>
#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "repl/endpoint/command.h"
#include "repl/endpoint/training_view.h"
#include "repl/endpoint/watch.h"

namespace mslua::endpoint {

// What a command came to: text for people and, where there is one, a JSON object for programs.
struct Answer {
  std::string text, json;
};

struct Request {
  uint64_t client = 0;
  std::string id;  // empty: the client has its answer already, and what comes is an event
  bool json = false;
  Command command;
  std::string who;  // "process 4102": for the record
};

// Carries out `.set lr=0.1`, or `lr=schedule`, from the next step on.
StatusOr<Answer> ApplySet(Trainer& trainer, const std::string& assignment);

class Boundary : public BoundaryListener {
 public:
  // Any thread may be told: the answer to a request; a line for one client, or for all (client 0).
  struct Outlet {
    std::function<void(const Request& request, const StatusOr<Answer>& answer)> answer;
    std::function<void(uint64_t client, const std::string& line)> event;
  };

  Boundary(const TrainingView& view, Outlet outlet);
  ~Boundary() override;
  Boundary(const Boundary&) = delete;
  Boundary& operator=(const Boundary&) = delete;

  // Any thread: queues a command that is no snapshot.
  void Submit(Request request);
  // Any thread: the watches and breaks of a client that has gone end.
  void Forget(uint64_t client);
  bool paused() const;
  // Any thread: "watch Net/relu every 5", one a line.
  std::string Waiting() const;
  // Training is over: what waits is answered so.
  void Close();

  Status AtBoundary(const TrainState& state) override;
  void AtBadLoss(const TrainState& state) override;

 private:
  struct Watch {
    uint64_t client;
    Named named;
    int64_t every, left;
    int64_t last = -1;  // step at which it was last reported
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

  using Lock = std::unique_lock<std::mutex>;
  void RunDue(const TrainState& state, Lock& lock);
  StatusOr<Answer> Execute(const Request& request, const TrainState& state, bool* later);
  StatusOr<Answer> Show(const Request& request, const TrainState& state, bool* later);
  StatusOr<Answer> AnswerValue(const Request& request, const Named& named, int64_t step);
  StatusOr<Answer> AddWatch(const Request& request);
  StatusOr<Answer> RemoveWatch(const Request& request);
  StatusOr<Answer> AddBreak(const Request& request);
  StatusOr<Answer> Step(const Request& request, const TrainState& state, bool* later);
  void ReportWatches(const TrainState& state);
  void CheckBreaks(const TrainState& state);
  void ReportPause(const TrainState& state);
  Status ShowWanted();
  void Wait(const TrainState& state, Lock& lock, bool bad_loss);
  void Record(const Request& request, int64_t step);
  bool Busy() const;

  const TrainingView& view_;
  const Outlet outlet_;
  std::FILE* events_ = nullptr;

  mutable std::mutex mutex_;  // guards all below; held by the training thread at a boundary but while it waits
  std::condition_variable changed_;
  std::unique_ptr<Watched> watched_;
  std::vector<Request> waiting_;
  std::vector<Watch> watches_;
  std::vector<Break> breaks_;
  std::vector<Once> once_;
  bool paused_ = false, closed_ = false;
  int64_t pause_at_ = -1;          // .step: steps done
  std::vector<Request> on_pause_;  // to be answered then
  int64_t seen_step_ = -1;
};

}  // namespace mslua::endpoint
