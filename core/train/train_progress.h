// Where a training stands, as other threads may read it at any time: the training thread writes, nobody waits.
#pragma once

#include <time.h>

#include <array>
#include <atomic>
#include <cstdint>

namespace mslua {

struct TrainProgress {
  enum class Phase : int { kStarting, kData, kCompute, kBetween, kPaused, kDone };
  static constexpr int64_t kLosses = 4096;

  std::atomic<int64_t> step{0}, epoch{0}, step_in_epoch{0}, samples{0};  // as TrainState says
  std::atomic<Phase> phase{Phase::kStarting};
  std::atomic<int64_t> since_ns{0};                // when the phase began, by CoarseNow
  std::array<std::atomic<float>, kLosses> losses;  // of step s (done, from 1) at (s - 1) % kLosses
  std::array<std::atomic<int64_t>, kLosses> ends;  // when they were done, by CoarseNow, as the losses
  int64_t first_step = 0;                          // steps done when this process began; set before it is shared
  // The last boundary that a request may be too late for: `step`, or the next one where a step has begun while another
  // runs.
  std::atomic<int64_t> boundary{0};

  // The monotonic clock in steps of 4 ms, which costs a few nanoseconds.
  static int64_t CoarseNow() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return now.tv_sec * int64_t{1000000000} + now.tv_nsec;
  }
  // Samples that this rank goes through in a second: of the steps of the last seconds, two of them at least; from the
  // moment on that a step takes longer than those did, that counts too. 0 before the second step.
  double SamplesPerSecond() const;
  void Enter(Phase next) {
    phase.store(next, std::memory_order_relaxed);
    since_ns.store(CoarseNow(), std::memory_order_relaxed);
  }
};

// "waits for data", "computes", ...
const char* PhaseName(TrainProgress::Phase phase);

}  // namespace mslua
