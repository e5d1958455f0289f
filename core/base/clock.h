// The monotonic clock, which deadlines and durations are measured with.
//
// The calendar clock may be set back or forth at any moment, and then a deadline built from it comes hours late or at
// once. tools/lint rejects it, but for the files that write the time of day for people (CALENDAR in tools/lint).
#pragma once

#include "absl/time/time.h"

namespace mslua {

// A moment of this host's monotonic clock. It stands still while the machine is suspended. Moments of different hosts
// cannot be compared.
class MonotonicTime {
 public:
  constexpr MonotonicTime() = default;  // when the host was started
  constexpr explicit MonotonicTime(absl::Duration since_start) : since_start_(since_start) {}
  static constexpr MonotonicTime InfiniteFuture() { return MonotonicTime(absl::InfiniteDuration()); }
  static constexpr MonotonicTime InfinitePast() { return MonotonicTime(-absl::InfiniteDuration()); }

  MonotonicTime& operator+=(absl::Duration by) {
    since_start_ += by;
    return *this;
  }
  friend MonotonicTime operator+(MonotonicTime t, absl::Duration by) { return t += by; }
  friend MonotonicTime operator-(MonotonicTime t, absl::Duration by) { return t += -by; }
  friend absl::Duration operator-(MonotonicTime a, MonotonicTime b) { return a.since_start_ - b.since_start_; }
  friend bool operator<(MonotonicTime a, MonotonicTime b) { return a.since_start_ < b.since_start_; }
  friend bool operator>(MonotonicTime a, MonotonicTime b) { return b < a; }
  friend bool operator<=(MonotonicTime a, MonotonicTime b) { return !(b < a); }
  friend bool operator>=(MonotonicTime a, MonotonicTime b) { return !(a < b); }
  friend bool operator==(MonotonicTime a, MonotonicTime b) { return a.since_start_ == b.since_start_; }
  friend bool operator!=(MonotonicTime a, MonotonicTime b) { return !(a == b); }

 private:
  absl::Duration since_start_;
};

MonotonicTime MonotonicNow();

}  // namespace mslua
