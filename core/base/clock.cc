#include "core/base/clock.h"

#include <time.h>

namespace mslua {

MonotonicTime MonotonicNow() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return MonotonicTime(absl::DurationFromTimespec(now));
}

}  // namespace mslua
