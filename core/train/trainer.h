// The step loop: reads data, runs one executable per step, prints losses. Between steps it reads one atomic word. Other
// code runs only if that word is set or a hook is due. On a device the next step begins before the loss of the one that
// runs is read, where nothing needs the training to stand between the two.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/runtime/device_run.h"
#include "core/runtime/executable.h"
#include "core/schedule/declare/schedule.h"
#include "core/train/console.h"
#include "core/train/optimizer_history.h"
#include "core/train/train_progress.h"

namespace mslua {

namespace data {
struct Batch;
class Loader;
}  // namespace data

class ShapedExecutable;

// Where training stands. Steps and epochs that are done; `step` is also the number (from 0) of the next step.
struct TrainState {
  int64_t step = 0;           // over all epochs
  int64_t epoch = 0;          // full epochs done
  int64_t step_in_epoch = 0;  // of the current epoch
  double loss = 0;            // of the last step
  int64_t samples = 0;        // seen since Run began
  bool whole = true;          // false: a step broke off, or its loss was NaN; the store may hold half a step
};

// What a hook must remember for a resumed run to be equal bit for bit, by name ("loss_scale.value"); finite numbers.
using Counters = std::map<std::string, double>;
// The counter of that name, else `otherwise` (a checkpoint of a run without that hook).
double CounterOf(const Counters& counters, const std::string& name, double otherwise);
// A number of some kind ("eval_value.") that need not be finite, and all numbers of that kind by name.
void SaveNumber(const std::string& kind, const std::string& name, double value, Counters* counters);
std::map<std::string, double> SavedNumbers(const std::string& kind, const Counters& counters);

// Something that happens at step boundaries: checkpoints, evaluation, Lua callbacks, metrics.
class TrainHook {
 public:
  virtual ~TrainHook() = default;
  // The next boundary (steps done) at which AtStep is wanted; a large number for never. Asked after each call.
  virtual int64_t NextStep(const TrainState& state) { return INT64_MAX; }
  virtual Status AtStep(const TrainState& state) { return absl::OkStatus(); }
  virtual Status AtEpochBegin(const TrainState& state) { return absl::OkStatus(); }
  // state.epoch counts the epoch that ended.
  virtual Status AtEpochEnd(const TrainState& state) { return absl::OkStatus(); }
  virtual Status AtBegin(const TrainState& state) { return absl::OkStatus(); }
  // When training is done: all epochs, max_steps or a hook's wish; not after an error or an outside request to stop.
  virtual Status AtLastStep(const TrainState& state) { return absl::OkStatus(); }
  // Also after an error or a stop; `outcome` says which.
  virtual void AtEnd(const TrainState& state, const Status& outcome) {}
  virtual void SaveCounters(Counters* counters) const {}
  virtual void RestoreCounters(const Counters& counters) {}
  // Whether AtStep only reads: the state, the trainer's scalars, outputs of the step that update nothing. It may then
  // be called while the next step runs.
  virtual bool only_reads() const { return false; }
};

// Somebody who acts between two steps when asked to: the control plane.
class BoundaryListener {
 public:
  virtual ~BoundaryListener() = default;
  // On the training thread, after RequestBoundary; may wait here (a pause) until Trainer::stop_requested. To be called
  // after the next step too, it asks again.
  virtual Status AtBoundary(const TrainState& state) = 0;
  // On the training thread, after each step; `bad`: its loss is not a number. Gives whether training ends for that:
  // where it is bad, and, when somebody wants to know, where it is bad on any of the ranks that train together. May
  // wait here.
  virtual StatusOr<bool> AtLoss(const TrainState& state, bool bad) = 0;
};

struct TrainerOptions {
  int64_t epochs = 1;
  int64_t max_steps = 0;   // 0: no limit; counts from the beginning of training, not of this process
  bool check_loss = true;  // a NaN or infinite loss ends training (exit code 7)
  int64_t seed = 1;
  int64_t rows = 0;  // of the batches of all ranks together, remembered by checkpoints; 0: not known
  // Of the optimizer, before this training: schedules, the input "step" and kUpdates continue from there.
  OptimizerHistory before;
  double ema = 0;  // the decay of the averages that a step updates; 0: it has none
  // Ranks that train one network stop at the same step. After each step and epoch, and where a training resumes:
  // whether this rank should stop goes in, whether any should comes out. Empty: this rank's own business.
  std::function<StatusOr<bool>(bool stop)> agree;
  // Whether the stop that was requested is a hook's wish, on any of the ranks: training is then done. Empty: it is not.
  std::function<bool()> done;
};

// A scalar input of the graph that follows a schedule: "lr", "lr.1", ...
struct ScheduledScalar {
  std::string input;
  Schedule schedule;
  // A user's function instead, called between steps; `step` counts from 0, with those of the optimizer's history.
  std::function<StatusOr<double>(int64_t step)> user;
  bool is_rate = false;  // a learning rate, which ReduceRates concerns
};

// The scalar input of a step that counts the updates made before it: steps that a loss scale skipped are left out.
inline constexpr char kUpdates[] = "updates";

// Of the counters in a checkpoint: the steps that were skipped.
inline constexpr char kSkippedCounter[] = "loss_scale.skipped";
// Of the counters in a checkpoint: TrainerOptions::rows of the run that saved it.
inline constexpr char kRowsCounter[] = "data.rows";
// Of the counters in a checkpoint: the steps that an epoch had in the run that saved it.
inline constexpr char kEpochStepsCounter[] = "data.epoch_steps";

class Trainer {
 public:
  ~Trainer();
  // `step` is the compiled training graph, a ShapedExecutable where batches have several shapes: data inputs fed from
  // the loader's columns in order, scalar inputs "step" (number of the optimizer's step, from 0), kUpdates, and those
  // of `scalars`; output 0 is the loss. Nothing is owned; all outlive the trainer.
  static StatusOr<std::unique_ptr<Trainer>> Create(Executable* step, data::Loader* loader,
                                                   std::vector<ScheduledScalar> scalars, const TrainerOptions& options,
                                                   Console* console);

  // In the order in which they are called. Not owned.
  void AddHook(TrainHook* hook) { hooks_.push_back(hook); }

  // Trains until the epochs, max_steps or a request to stop. Cancelled: somebody asked (RequestStop); the state is
  // whole. OutOfRange: the loss is not a number.
  Status Run();
  // One step, at most; the state then says what happened. False at an epoch's end (no step was made).
  StatusOr<bool> Step();

  // Called around TrainerOptions::agree after each step and epoch: what has happened is made ready to be kept, and is
  // kept once all ranks have it ready. Before Run.
  void KeepTurns(std::function<Status()> prepare, std::function<void()> commit) {
    prepare_ = std::move(prepare);
    commit_ = std::move(commit);
  }
  // Resumes there; before Run, when all hooks are there.
  Status Restore(const TrainState& state, const Counters& counters);
  // What people changed, as checkpoints remember it (the last kInterventions): JSON objects, oldest first.
  static constexpr size_t kInterventions = 1000;
  void AddIntervention(std::string json);
  const std::vector<std::string>& interventions() const { return interventions_; }
  // Of all hooks, and what was overridden.
  Counters SaveCounters() const;
  const TrainState& state() const { return state_; }
  // Of the optimizer, with this training's steps.
  OptimizerHistory history() const;
  // From the next step on the learning rates are those of their schedules times `scale`, and not reduced below `least`.
  void ReduceRates(double scale, double least) {
    options_.before.rate_scale = scale;
    options_.before.least_rate = least;
  }
  double rate_scale() const { return options_.before.rate_scale; }
  // The step that was just made updated nothing. Checkpoints remember how many did.
  void CountSkippedStep() { ++skipped_; }
  // Overrides a scheduled scalar from the next step on (".set lr"), or once `at` steps are done; NaN gives it back to
  // its schedule.
  Status Override(const std::string& input, double value, int64_t at = 0);
  struct LaterOverride {
    std::string input;
    int64_t at = 0;
    double value = 0;
  };
  // Those that are to come, by `at`.
  const std::vector<LaterOverride>& later_overrides() const { return later_; }
  const std::vector<ScheduledScalar>& scalars() const { return scalars_; }
  // Of the last step that is done, also where training resumes after it; NaN before there is one.
  double ScalarNow(int i) const { return done_scalars_[i]; }
  // Of the next step: what it is overridden with, else the schedule's value; that of the last step where a function of
  // the user gives it.
  double ScalarNext(int i) const;
  // Forgets the overrides of `input` that are to come, up to that of `last` steps done; gives how many there were.
  int64_t DropLater(const std::string& input, int64_t last);

  // Async-signal-safe: the loop stops at the next boundary.
  void RequestStop() { attention_.fetch_or(kStop); }
  bool stop_requested() const { return (attention_.load() & kStop) != 0; }
  // On the training thread of all ranks that train together, at one boundary: they stop there, without another step.
  void StopTogether() {
    all_stop_ = true;
    RequestStop();
  }
  // Any thread: the listener is called at the next boundary. Of a boundary that progress().boundary reports afterwards
  // as not yet passed, the listener is sure to hear.
  void RequestBoundary() { attention_.fetch_or(kBoundary); }
  // Before Run, or at a boundary; null for none. Not owned.
  void SetBoundaryListener(BoundaryListener* listener) { listener_ = listener; }
  // Where training stands, for other threads.
  TrainProgress& progress() { return progress_; }

  // The graph that the steps run. Where batches have one shape, it may be replaced at a boundary by one with the same
  // inputs, and the same outputs but for more behind them.
  Executable* executable() const { return executable_; }
  void ReplaceExecutable(Executable* executable);

  // Seconds in Run() so far, without compiling; seconds waiting for data.
  double seconds() const { return seconds_; }
  double data_seconds() const;

 private:
  // A step that has begun. Its batch is kept until it has ended, for the sample that an error names.
  struct Begun {
    std::unique_ptr<data::Batch> batch;
    std::vector<std::shared_ptr<void>> columns;
    std::vector<double> scalars;
  };

  Trainer();
  void SetExecutable(Executable* executable);
  Status SetScalars();
  void ApplyLater();
  Status RunHooks();
  Status EndEpoch();
  bool AtEndOfData() const;
  Status CheckLoss();
  Status Attend();
  void Publish();
  Status Loop();
  Status EndHooks();
  Status Stopped();
  StatusOr<bool> StepImpl();
  StatusOr<bool> BeginStep();
  Status EndStep();
  bool MayRunAhead() const;
  bool BeginsNext();
  void DropBegun();
  Begun& begun(int64_t step) { return begun_[static_cast<size_t>(step) % begun_.size()]; }

  static constexpr uint32_t kStop = 1, kBoundary = 2;

  Executable* executable_ = nullptr;
  data::Loader* loader_ = nullptr;
  Console* console_ = nullptr;
  TrainerOptions options_;
  std::function<Status()> prepare_;  // empty: turns are not kept
  std::function<void()> commit_;
  std::vector<ScheduledScalar> scalars_;
  std::vector<int> scalar_positions_;  // inputs of the executable
  std::vector<double> current_, overrides_;
  std::vector<LaterOverride> later_;
  int step_position_ = -1, updates_position_ = -1;
  int64_t skipped_ = 0;  // steps without an update
  std::vector<int> column_positions_;
  std::vector<const void*> bound_;  // what each column is bound to
  std::vector<TrainHook*> hooks_;
  int64_t next_hook_ = 0;
  TrainState state_;
  DeviceRun* device_run_ = nullptr;     // of the executable; null on the CPU
  std::atomic<uint32_t> attention_{0};  // the one word that is read between steps
  BoundaryListener* listener_ = nullptr;
  TrainProgress progress_;
  bool in_epoch_ = false;
  bool all_stop_ = false;  // all ranks know of the request to stop
  double seconds_ = 0;
  std::vector<std::string> interventions_;
  ShapedExecutable* shaped_ = nullptr;  // executable_, where batches have several shapes
  std::vector<double> done_scalars_;    // of the last step that is done
  std::array<Begun, 2> begun_;          // by the step's number
  int running_ = 0;                     // steps that have begun and not ended; state_.step is the first one's number
  bool ahead_ = false;                  // a step may begin while another runs
  bool broken_ = false;                 // the store may have a part of a step that could not begin
  int64_t next_stand_ = 0;              // the next boundary with a hook that does not only read
  Status next_failed_;                  // of a step that was to begin while another ran: to be told after that one
};

}  // namespace mslua
