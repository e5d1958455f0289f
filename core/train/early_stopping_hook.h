// Ends training when a number has not improved for some epochs (EarlyStopping).
#pragma once

#include <cmath>
#include <string>

#include "core/train/progress.h"

namespace mslua {

class EarlyStoppingHook : public TrainHook {
 public:
  // `monitor`: a name of Progress::found; `evaluated`: the training evaluates, which may be less often than it ends an
  // epoch. An improvement is a change by more than `min_delta`; `smaller`: downwards. NaN is no improvement.
  EarlyStoppingHook(Progress* progress, std::string monitor, bool evaluated, double min_delta, int64_t patience,
                    bool smaller)
      : progress_(progress),
        evaluated_(evaluated),
        monitor_(std::move(monitor)),
        min_delta_(min_delta),
        patience_(patience),
        sign_(smaller ? 1 : -1) {}

  Status AtEpochEnd(const TrainState& s) override;
  void SaveCounters(Counters* counters) const override;
  void RestoreCounters(const Counters& counters) override;

 private:
  Progress* const progress_;
  const bool evaluated_;
  const std::string monitor_;
  const double min_delta_;
  const int64_t patience_;
  const double sign_;
  double best_ = HUGE_VAL;
  int64_t worse_ = 0;  // epochs since the best one
  int64_t seen_ = 0;   // evaluations that were judged
};

}  // namespace mslua
