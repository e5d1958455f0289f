// Tells a job's launcher of each step (launch/shared_step.h).
#pragma once

#include <memory>
#include <utility>

#include "core/train/trainer.h"
#include "launch/shared_step.h"

namespace mslua {

class SharedStepHook : public TrainHook {
 public:
  explicit SharedStepHook(std::unique_ptr<SharedStep> step) : step_(std::move(step)) {}

  int64_t NextStep(const TrainState& s) override { return step_->Get() == s.step ? s.step + 1 : s.step; }
  bool only_reads() const override { return true; }
  Status AtStep(const TrainState& s) override {
    step_->Set(s.step);
    return absl::OkStatus();
  }

 private:
  const std::unique_ptr<SharedStep> step_;
};

}  // namespace mslua
