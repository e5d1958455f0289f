#include "core/train/monitor.h"

#include <gtest/gtest.h>

#include <cmath>

namespace mslua {
namespace {

constexpr char kName[] = "accuracy";

Monitor GreaterIsBetter(Progress* progress) {
  return Monitor(progress, kName, /*evaluated=*/false, /*min_delta=*/0, /*smaller=*/false, "a test", "test", nullptr);
}

TEST(Monitor, TheBestNumberIsKeptOverAResumeAlsoWhereItIsInfinite) {
  for (const double best : {0.5, HUGE_VAL}) {
    Progress progress;
    Monitor first = GreaterIsBetter(&progress);
    EXPECT_FALSE(first.any());
    progress.Set(kName, best);
    EXPECT_EQ(*first.Judge(), Monitor::Verdict::kBetter);
    Counters counters;
    first.SaveCounters(&counters);
    for (const auto& [name, value] : counters) EXPECT_TRUE(std::isfinite(value)) << name;  // as manifests have it

    Monitor resumed = GreaterIsBetter(&progress);
    resumed.RestoreCounters(counters);
    EXPECT_TRUE(resumed.any());
    progress.Set(kName, 0.25);
    EXPECT_EQ(*resumed.Judge(), Monitor::Verdict::kNotBetter);
  }
  Monitor fresh = GreaterIsBetter(nullptr);
  fresh.RestoreCounters({});
  EXPECT_FALSE(fresh.any());
}

}  // namespace
}  // namespace mslua
