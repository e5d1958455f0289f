// Whether a job that has failed starts again. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "core/base/status.h"

namespace mslua {

// Whether a job that ended with this exit code may do better when it starts again: a rank has crashed, was killed, was
// stopped or did not answer. Errors of the recipe, the data, the disk or the user would come back.
bool MayStartAgain(int exit_code);

// What is known of a job's progress: the memory of an image and the turn that was committed in it.
using JobTurn = std::pair<uint64_t, int64_t>;

class RestartPolicy {
 public:
  // How often a job may fail in the same way without a turn in between.
  static constexpr int kSameFailures = 3;

  struct Verdict {
    bool again = false;
    absl::Duration pause;  // before that
    std::string why;       // not again, though the failure is of the kind that may pass; else empty
    bool counted = false;  // `why` says how often the job has started again
  };

  // `most`: restarts in all; -1: no limit.
  explicit RestartPolicy(int64_t most) : most_(most) {}
  // After a failure, with its Cause (cause.h), at `turn`. OK is not a failure.
  Verdict Judge(const Status& failure, const JobTurn& turn);

 private:
  const int64_t most_;
  int64_t restarts_ = 0;
  int without_progress_ = 0;  // failures at turn_
  int same_ = 0;              // of them, the last ones, that were alike
  JobTurn turn_ = {0, -2};
  std::pair<int, int> last_ = {-2, -2};  // rank and exit code
};

}  // namespace mslua
