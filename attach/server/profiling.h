// The profile that .prof asks for, over the next steps.
#pragma once

#include <memory>
#include <vector>

#include "attach/server/step_profile.h"
#include "attach/server/watch_list.h"

namespace mslua::endpoint {

// Belongs to a boundary, on the training thread.
class Profiling {
 public:
  Profiling(const TrainingView& view, const Outlet& outlet) : view_(view), outlet_(outlet) {}

  // All ranks at one boundary. The request is answered when the trace is written: by an event, if it is `told`.
  // FailedPrecondition: one is being made already.
  Status Begin(const Request& request, int64_t steps);
  bool active() const { return profile_ != nullptr; }
  // After a step.
  void AddStep(const TrainState& state);
  // At a boundary's end.
  void LeaveBoundary();
  // Ends it; a request that waits is added to `unanswered`.
  void Close(std::vector<Request>* unanswered);

 private:
  StatusOr<Answer> Finish(const TrainState& state);

  const TrainingView& view_;
  const Outlet& outlet_;
  std::unique_ptr<StepProfile> profile_;  // null: no step is measured
  Request request_;
};

}  // namespace mslua::endpoint
