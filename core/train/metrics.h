// The record of a run: metrics.jsonl, one JSON object a line, and the same numbers as TensorBoard events.
#pragma once

#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/train/event_file.h"
#include "core/train/trainer.h"

namespace mslua {

//   {"step":156,"epoch":1,"loss":2.0084016,"lr":0.1,"samples_per_s":812.3,"data_wait":0.02}
//   {"step":390,"epoch":1,"eval_loss":0.91,"top1":0.682}
class MetricsHook : public TrainHook {
 public:
  // Files in `folder`, which must exist. A line every `every` steps, and at each epoch's end.
  static StatusOr<std::unique_ptr<MetricsHook>> Create(const std::string& folder, int64_t every, Trainer* trainer);
  ~MetricsHook() override;

  int64_t NextStep(const TrainState& state) override { return next_; }
  Status AtStep(const TrainState& state) override;
  Status AtEpochEnd(const TrainState& state) override;
  void AtEnd(const TrainState& state, const Status& outcome) override;

  // Numbers of somebody else (an evaluation), at this step.
  void Write(const TrainState& state, const std::vector<std::pair<std::string, double>>& numbers);

 private:
  MetricsHook(int64_t every, Trainer* trainer)
      : every_(every), next_(1), trainer_(trainer), at_(std::chrono::steady_clock::now()) {}

  const int64_t every_;
  int64_t next_;
  Trainer* const trainer_;
  std::FILE* file_ = nullptr;
  std::unique_ptr<EventFile> events_;
  std::chrono::steady_clock::time_point at_;  // of the last line
  int64_t samples_ = 0;
  double wait_ = 0;
  int64_t written_ = -1;  // step of the last line
};

}  // namespace mslua
