// The record of a run: metrics.jsonl, one JSON object a line, and the same numbers as TensorBoard events.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "core/files/record_file.h"
#include "core/runtime/profile.h"
#include "core/train/event_file.h"
#include "core/train/step_numbers.h"
#include "core/train/trainer.h"

namespace mslua {

struct MetricsOptions {
  std::string folder;  // of the files; it must exist
  int64_t every = 1;   // steps between two records
  // So many records are written at multiples of `every` steps, the same number at twice the interval, again at four
  // times, and so on: of n records that `every` asks for, about limit * log2(n / limit) are written. Evaluations are
  // counted, and thinned, by themselves.
  int64_t limit = 10000;
  double rows = 0;  // samples of a step, over all ranks, on average; 0: not known
};

// Whether lines of metrics.jsonl have this key, whatever the recipe is.
bool IsMetricsKey(absl::string_view key);

// The step of a line of metrics.jsonl, and whether it is a training step's (and not an evaluation's); -1: no such line.
int64_t StepOfMetrics(absl::string_view line, bool* loss);

//   {"step":156,"epoch":1,"loss":2.0084016,"lr":0.1,"samples_per_s":812.3,"data_wait":0.02}
// With "grad_norm" where the step computes it and, at most ten times a second, "tflops" (10^12 floating point
// operations a second of this rank, since they were written last), "peak_memory" (bytes of this process), "time"
// (seconds since 1970) and "samples" (the step times the samples of a step of all ranks, on
// average).
//   {"step":390,"epoch":1,"eval_loss":0.91,"top1":0.682}
class MetricsHook : public TrainHook {
 public:
  // A run that resumes in a folder keeps the interval of the records that are there. `trainer` and `health`
  // outlive the hook.
  static StatusOr<std::unique_ptr<MetricsHook>> Create(const MetricsOptions& options, Trainer* trainer,
                                                       RecordHealth* health);

  int64_t NextStep(const TrainState& state) override { return next_; }
  bool only_reads() const override { return true; }
  Status AtBegin(const TrainState& state) override;
  Status AtStep(const TrainState& state) override;
  Status AtEpochEnd(const TrainState& state) override;
  void AtEnd(const TrainState& state, const Status& outcome) override;
  void SaveCounters(Counters* counters) const override;
  void RestoreCounters(const Counters& counters) override;

  // The run's TensorBoard events, for others to write into.
  EventFile* events() const { return events_.get(); }
  // Numbers of somebody else (an evaluation), at this step.
  void Write(const TrainState& state, const std::vector<std::pair<std::string, double>>& numbers);

 private:
  // Of records of one kind: which are written.
  struct Thinning {
    int64_t limit, written = 0;
    int64_t asked = 0;  // since the run began
    // 1, 2, 4, ...: each how many of the records that are asked for is written.
    int64_t stride() const;
  };
  MetricsHook(const MetricsOptions& options, Trainer* trainer)
      : every_(options.every),
        rows_(options.rows),
        trainer_(trainer),
        steps_{options.limit},
        evaluations_{options.limit},
        has_norm_(HasGradNorm(*trainer->executable())),
        flops_(FlopsOf(*trainer->executable())),
        at_(std::chrono::steady_clock::now()) {}
  Status CountRecords(const std::string& path);
  void SetNext(const TrainState& state);
  void WriteStep(const TrainState& state);
  void AddWork(const TrainState& state, std::vector<std::pair<std::string, double>>* numbers);
  void WriteLine(const TrainState& state, const std::vector<std::pair<std::string, double>>& numbers);

  const int64_t every_;
  const double rows_;
  int64_t next_ = 1;
  Trainer* const trainer_;
  Thinning steps_, evaluations_;
  std::unique_ptr<RecordFile> file_;
  std::unique_ptr<EventFile> events_;
  const bool has_norm_;
  const double flops_;  // of a step
  // When "tflops" was written last, and after how many steps; at first the begin of the steps.
  std::chrono::steady_clock::time_point work_at_;
  int64_t work_step_ = -1;
  std::chrono::steady_clock::time_point at_;  // of the last record of a step
  int64_t samples_ = 0;
  double wait_ = 0;
  int64_t written_ = -1;  // step of that record
};

}  // namespace mslua
