// The mean loss of each epoch, and its time.
#pragma once

#include <chrono>

#include "core/train/progress.h"

namespace mslua {

class EpochHook : public TrainHook {
 public:
  // TimeMonitor's line every `time_every` epochs (0: never), its mean over `time_steps` steps (0: those of the epoch).
  // `print_loss`: a line with the mean loss of each epoch, and of the steps of one that training ends in.
  EpochHook(Progress* progress, int64_t time_every, int64_t time_steps, bool print_loss)
      : progress_(progress), time_every_(time_every), time_steps_(time_steps), print_loss_(print_loss) {}

  int64_t NextStep(const TrainState& s) override { return counted_ == s.step ? s.step + 1 : s.step; }
  bool only_reads() const override { return true; }
  Status AtStep(const TrainState& s) override;
  Status AtEpochBegin(const TrainState& s) override;
  Status AtEpochEnd(const TrainState& s) override;
  Status AtLastStep(const TrainState& s) override;
  void SaveCounters(Counters* counters) const override;
  void RestoreCounters(const Counters& counters) override;

 private:
  double Mean() const { return steps_ == 0 ? 0 : sum_ / static_cast<double>(steps_); }

  Progress* const progress_;
  const int64_t time_every_, time_steps_;
  const bool print_loss_;
  int64_t counted_ = 0, steps_ = 0;
  double sum_ = 0;
  std::chrono::steady_clock::time_point begun_;
};

}  // namespace mslua
