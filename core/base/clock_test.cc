#include "core/base/clock.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "absl/time/clock.h"

namespace {
int64_t shift_s = 0;  // of the calendar clock
}

// Takes the place of the C library's for this program.
extern "C" int clock_gettime(clockid_t clock, timespec* t) noexcept {
  const int status = static_cast<int>(syscall(SYS_clock_gettime, clock, t));
  if (clock == CLOCK_REALTIME) t->tv_sec += shift_s;
  return status;
}

namespace mslua {
namespace {

TEST(Clock, Arithmetic) {
  const MonotonicTime a(absl::Seconds(5)), b = a + absl::Milliseconds(500);
  EXPECT_EQ(b - a, absl::Milliseconds(500));
  EXPECT_EQ(b - absl::Milliseconds(500), a);
  EXPECT_TRUE(a < b && b > a && a <= a && a >= a && a != b);
  EXPECT_EQ(MonotonicTime::InfiniteFuture() - a, absl::InfiniteDuration());
  EXPECT_EQ(a - MonotonicTime::InfiniteFuture(), -absl::InfiniteDuration());
  EXPECT_LT(MonotonicTime::InfinitePast(), MonotonicTime());
  EXPECT_EQ(MonotonicTime::InfiniteFuture() - absl::Hours(1), MonotonicTime::InfiniteFuture());
}

TEST(Clock, StepsOfTheCalendarClockDoNotShow) {
  MonotonicTime last = MonotonicNow();
  const MonotonicTime begin = last;
  for (const int64_t shift : {3600, -3600, 4, -4, 0}) {
    const absl::Time calendar = absl::Now();
    const int64_t before = shift_s;
    shift_s = shift;
    if (shift < before) {
      EXPECT_LT(absl::Now(), calendar);  // the step takes effect
    }
    const MonotonicTime now = MonotonicNow();
    EXPECT_GE(now, last);
    last = now;
  }
  EXPECT_LT(last - begin, absl::Minutes(30));
}

}  // namespace
}  // namespace mslua
