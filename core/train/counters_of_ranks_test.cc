#include "core/train/counters_of_ranks.h"

#include "gtest/gtest.h"

namespace mslua {
namespace {

const Counters kSaved = {
    {"epoch.loss_sum", 6}, {"epoch.steps", 2}, {"rank.1.epoch.loss_sum", 12}, {"rank.1.watch.best", 3}};

TEST(CountersOfRank, ARankHasWhatItSaved) {
  EXPECT_EQ(CountersOfRank(kSaved, 2, 0, 2), (Counters{{"epoch.loss_sum", 6}, {"epoch.steps", 2}}));
  EXPECT_EQ(CountersOfRank(kSaved, 2, 1, 2), (Counters{{"epoch.loss_sum", 12}, {"epoch.steps", 2}, {"watch.best", 3}}));
}

TEST(CountersOfRank, OtherRanksHaveTheMean) {
  EXPECT_EQ(CountersOfRank(kSaved, 2, 2, 3), (Counters{{"epoch.loss_sum", 9}, {"epoch.steps", 2}}));
  EXPECT_EQ(CountersOfRank(kSaved, 2, 0, 1), (Counters{{"epoch.loss_sum", 9}, {"epoch.steps", 2}}));
}

}  // namespace
}  // namespace mslua
