#include "launch/this_host.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace mslua {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

TEST(ThisHost, CoresAreSharedOut) {
  const auto spins = Pair("GOMP_SPINCOUNT", "5000");
  EXPECT_THAT(ThreadVariables({}, 2, 8), UnorderedElementsAre(Pair("OMP_NUM_THREADS", "4"), spins));
  EXPECT_THAT(ThreadVariables({}, 3, 8), UnorderedElementsAre(Pair("OMP_NUM_THREADS", "2"), spins));
  EXPECT_THAT(ThreadVariables({}, 1, 8), UnorderedElementsAre(spins));
  EXPECT_THAT(ThreadVariables({}, 4, 2),
              UnorderedElementsAre(Pair("OMP_NUM_THREADS", "1"), Pair("OMP_WAIT_POLICY", "passive")));
}

TEST(ThisHost, WhatIsSetStays) {
  EXPECT_THAT(ThreadVariables({{"OMP_NUM_THREADS", "1"}, {"GOMP_SPINCOUNT", "7"}}, 2, 8), IsEmpty());
  EXPECT_THAT(ThreadVariables({{"OMP_NUM_THREADS", "8"}}, 2, 8),
              UnorderedElementsAre(Pair("OMP_WAIT_POLICY", "passive")));
  EXPECT_THAT(ThreadVariables({{"OMP_NUM_THREADS", "8"}, {"OMP_WAIT_POLICY", "active"}}, 2, 8), IsEmpty());
}

TEST(ThisHost, MoreRanksThanTheLimitsAllowAreRefused) {
  HostLimits limits;
  EXPECT_TRUE(CheckRanks(1000000000000, limits).ok());
  limits.open_files = 1024;
  EXPECT_TRUE(CheckRanks(336, limits).ok());
  EXPECT_EQ(
      CheckRanks(337, limits).message(),
      "-n 337: each rank takes 3 open files of the launcher, and the limit is 1024 (ulimit -n): start at most 336 "
      "ranks here, or raise the limit");
  limits.tasks = 100;
  EXPECT_TRUE(CheckRanks(50, limits).ok());
  EXPECT_THAT(std::string(CheckRanks(51, limits).message()),
              HasSubstr("2 processes and threads, and the limit is 100 (ulimit -u): start at most 50 ranks"));
  limits.open_files = 8;
  EXPECT_THAT(std::string(CheckRanks(2, limits).message()), HasSubstr("start at most 0 ranks"));
  limits = HostLimits();
  limits.memory = 600;
  EXPECT_TRUE(CheckRanks(100, limits).ok());
  EXPECT_EQ(CheckRanks(101, limits).message(),
            "-n 101: a rank of the smallest recipe takes 6 MiB of memory, and 600 MiB are free: start at most 100 "
            "ranks here, or use more hosts");
  EXPECT_GT(LimitsHere().memory, 1);
  EXPECT_LT(LimitsHere().memory, int64_t{1} << 30);
  EXPECT_GT(LimitsHere().open_files, 8);
  EXPECT_LE(LimitsHere().tasks, int64_t{1} << 22);  // the most that pid_max can be
}

TEST(ThisHost, TheKeyIsOfTheHost) {
  EXPECT_EQ(HostKey(), HostKey());
  EXPECT_EQ(HostKey().rfind(HostName() + ":", 0), 0u);
  EXPECT_FALSE(ProgramFile().empty());
  EXPECT_EQ(OwnEnvironment().count("TEST_TMPDIR"), 1u);
}

}  // namespace
}  // namespace mslua
