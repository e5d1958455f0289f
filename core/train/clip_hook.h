// Ends a training whose gradients clip_norm cannot scale down.
#pragma once

#include "core/train/progress.h"

namespace mslua {

// The norm of gradients whose squares are larger than any number of their type is infinite, and the gradients divided
// by it are zero: an error, OutOfRange, where the step has not skipped them.
class ClipHook : public TrainHook {
 public:
  // Output `finite` of the step says whether all gradients were finite and are used (f32, 1 or 0); -1: there is none.
  ClipHook(const Progress* progress, int finite) : progress_(progress), finite_(finite) {}

  int64_t NextStep(const TrainState& s) override { return seen_ == s.step ? s.step + 1 : s.step; }
  bool only_reads() const override { return true; }
  Status AtStep(const TrainState& s) override;

 private:
  const Progress* const progress_;
  const int finite_;
  int64_t seen_ = 0;
};

}  // namespace mslua
