// The losses of several steps that make one training step: the outputs "loss.<name>" of its graph, whose sum is the
// loss.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/train/progress.h"
#include "core/train/step_numbers.h"

namespace mslua {

// Prints the loss lines, "epoch: 1 step: 5, loss is 2.08 (critic 1.38, maker 0.7)", instead of the console, and gives
// each step's mean loss of the epoch as "<name>_loss".
class StepLossesHook : public TrainHook {
 public:
  // `log_every`: steps of the training between lines; 0: none.
  StepLossesHook(Progress* progress, int64_t log_every) : progress_(progress), log_every_(log_every) {}

  int64_t NextStep(const TrainState& s) override { return counted_ == s.step ? s.step + 1 : s.step; }
  bool only_reads() const override { return true; }
  Status AtStep(const TrainState& s) override;
  Status AtEpochBegin(const TrainState& s) override;
  void SaveCounters(Counters* counters) const override;
  void RestoreCounters(const Counters& counters) override;

 private:
  // Tells the means of the epoch so far.
  void SetMeans() const;
  void PrintLine(const TrainState& s, const std::vector<std::pair<std::string, double>>& losses) const;

  Progress* const progress_;
  const int64_t log_every_;
  int64_t counted_ = 0, steps_ = 0;
  std::vector<std::pair<std::string, double>> sums_;  // of the epoch's losses, by the steps' names
};

}  // namespace mslua
