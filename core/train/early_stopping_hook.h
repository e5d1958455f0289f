// Ends training when a number has not improved for some epochs (EarlyStopping).
#pragma once

#include <algorithm>
#include <string>
#include <utility>

#include "core/train/monitor.h"

namespace mslua {

class EarlyStoppingHook : public TrainHook {
 public:
  // Ends it when there was no improvement for `patience` epochs, at least one.
  EarlyStoppingHook(Progress* progress, Monitor monitor, int64_t patience)
      : progress_(progress), monitor_(std::move(monitor)), patience_(std::max<int64_t>(1, patience)) {}

  // The beginning of its counters' names.
  static constexpr char kKey[] = "early_stopping";

  // Whether it has ended the run that this one resumes from, and would now: nothing is left to train.
  bool ended() const { return ended_ && worse_ >= patience_; }

  Status AtBegin(const TrainState& s) override;
  Status AtEpochEnd(const TrainState& s) override;
  void SaveCounters(Counters* counters) const override;
  void RestoreCounters(const Counters& counters) override;

 private:
  Progress* const progress_;
  Monitor monitor_;
  const int64_t patience_;
  int64_t worse_ = 0;   // epochs since the best one
  bool ended_ = false;  // has asked for the end
};

}  // namespace mslua
