// A few steps of training, launch by launch, as a trace of all ranks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "attach/server/training_view.h"
#include "core/runtime/executable.h"

namespace mslua::endpoint {

// What rank 0 makes of the ranks' profiles.
struct MergedTrace {
  std::string json;     // Trace Event Format: pid = rank, tid 0 compute, 1 collectives, 2 waiting for data
  std::string summary;  // "compute 61%  collectives 22%  data 3%  other 14%  slowest rank 5 (+7%)"
};

// Belongs to the training thread, at boundaries: made before the first step to be measured, told of each. Between steps
// it knows no executable.
class StepProfile {
 public:
  // `zero_ns`: on the steady clock, a moment that is the same on all ranks.
  StepProfile(int64_t steps, int64_t zero_ns) : zero_ns_(zero_ns), left_(steps) {}
  ~StepProfile();
  StepProfile(const StepProfile&) = delete;
  StepProfile& operator=(const StepProfile&) = delete;

  // After a step, by its number, from 1.
  void AddStep(int64_t step);
  // At a boundary's end, when the wait for data begins. `next`: the plan that runs the step that follows.
  void LeaveBoundary(Executable* next);
  bool complete() const { return left_ <= 0; }
  // The events of this rank and its sums, for Merge.
  std::string Serialize(int rank) const;

  // From each rank's Serialize.
  static MergedTrace Merge(const std::vector<std::string>& ranks);

  static int64_t Now();

 private:
  void Measure(Executable* executable);

  Executable* executable_ = nullptr;
  const int64_t zero_ns_;
  int64_t left_;
  std::vector<int64_t> timeline_;
  struct Event {
    std::string name, kernel, detail;
    int64_t begin_ns, length_ns;
    int thread;
  };
  std::vector<Event> events_;
  struct Step {
    int64_t number, begin_ns, length_ns;
  };
  std::vector<Step> steps_;
  int64_t left_boundary_ns_ = 0;
  int64_t first_ns_ = 0, last_ns_ = 0;  // of what was measured
};

}  // namespace mslua::endpoint
