// `mslua train --profile S:N`: a trace of N steps of all ranks, from step S on, in the run folder.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "attach/server/step_profile.h"
#include "core/train/progress.h"
#include "core/train/trainer.h"

namespace mslua {

// Steps first, first + 1, ..., first + count - 1, from 1; count 0: none.
struct ProfiledSteps {
  int64_t first = 0, count = 0;
};
// Of "S:N". InvalidArgument: it is none.
StatusOr<ProfiledSteps> ParseProfiledSteps(const std::string& text);

class ProfileHook : public TrainHook {
 public:
  // `gather`: the texts of all ranks, called on each of them; empty: one rank. `folder`: of the run, on rank 0.
  ProfileHook(Progress* progress, const ProfiledSteps& steps, int rank, std::string folder,
              std::function<StatusOr<std::vector<std::string>>(const std::string& mine)> gather);

  int64_t NextStep(const TrainState& state) override;
  Status AtBegin(const TrainState& state) override { return Begin(state.step); }
  Status AtStep(const TrainState& state) override;
  void AtEnd(const TrainState& state, const Status& outcome) override;

 private:
  // Before the first of the steps.
  Status Begin(int64_t done);
  Status Write(int64_t step);

  Progress* const progress_;
  const ProfiledSteps steps_;
  const int rank_;
  const std::string folder_;
  const std::function<StatusOr<std::vector<std::string>>(const std::string& mine)> gather_;
  std::unique_ptr<endpoint::StepProfile> profile_;  // null: no step is measured
  int64_t seen_ = -1;
  bool written_ = false;
};

}  // namespace mslua
