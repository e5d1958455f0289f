// The scale of the loss: halved after a step with infinite gradients, raised after `window` good ones (MindSpore's
// DynamicLossScaleManager), or fixed. A step with infinite gradients updates nothing, and is counted as skipped.
#pragma once

#include "core/train/progress.h"

namespace mslua {

class LossScaleHook : public TrainHook {
 public:
  // Output `finite` of the step says whether all gradients were finite (f32, 1 or 0).
  LossScaleHook(const Progress* progress, int finite, double value, double factor, int64_t window, bool dynamic)
      : progress_(progress), finite_(finite), scale_(value), factor_(factor), window_(window), dynamic_(dynamic) {}
  double scale() const { return scale_; }

  int64_t NextStep(const TrainState& s) override { return seen_ == s.step ? s.step + 1 : s.step; }
  Status AtStep(const TrainState& s) override;
  // Says so where most steps of the training were skipped.
  void AtEnd(const TrainState&, const Status&) override;
  void SaveCounters(Counters* counters) const override;
  void RestoreCounters(const Counters& counters) override;

 private:
  const Progress* const progress_;
  const int finite_;
  double scale_;
  const double factor_;
  const int64_t window_;
  const bool dynamic_;
  int64_t good_ = 0, seen_ = 0;
  int64_t steps_ = 0, skipped_ = 0;  // of the training, with those before it was resumed
};

}  // namespace mslua
