#include "rendezvous/restart_policy.h"

#include "core/base/exit_code.h"
#include "gtest/gtest.h"
#include "rendezvous/cause.h"

namespace mslua {
namespace {

Status Failure(int rank, int code) { return WithCause(absl::UnavailableError("it failed"), {rank, code}); }

TEST(RestartPolicy, OnlyWhatMayPassIsTriedAgain) {
  for (const int code : {kExitUsage, kExitData, kExitEnvironment, kExitDiverged, kExitExpect, kExitStorage,
                         kExitSecurity, kExitInternal, kExitCheckpointed, kExitInterrupted}) {
    EXPECT_FALSE(RestartPolicy(-1).Judge(Failure(1, code), {1, 1}).again) << code;
  }
  EXPECT_TRUE(RestartPolicy(-1).Judge(Failure(1, kExitRankCrashed), {1, 1}).again);
  EXPECT_TRUE(RestartPolicy(-1).Judge(Failure(1, kExitHang), {1, 1}).again);
  EXPECT_FALSE(RestartPolicy(-1).Judge(absl::OkStatus(), {1, 1}).again);
}

TEST(RestartPolicy, TheSameFailureAtOneTurnEndsTheJob) {
  RestartPolicy policy(-1);
  EXPECT_EQ(policy.Judge(Failure(1, kExitRankCrashed), {1, 7}).pause, absl::ZeroDuration());
  EXPECT_EQ(policy.Judge(Failure(1, kExitRankCrashed), {1, 7}).pause, absl::Milliseconds(500));
  const auto last = policy.Judge(Failure(1, kExitRankCrashed), {1, 7});
  EXPECT_FALSE(last.again);
  EXPECT_NE(last.why.find("3 times in the same way"), std::string::npos);
  EXPECT_FALSE(last.counted);
}

TEST(RestartPolicy, AnotherFailureOrProgressCountsAnew) {
  RestartPolicy policy(-1);
  for (int i = 0; i < 40; ++i) EXPECT_TRUE(policy.Judge(Failure(1, kExitRankCrashed), {1, i}).again);
  EXPECT_TRUE(policy.Judge(Failure(2, kExitRankCrashed), {1, 39}).again);
  EXPECT_TRUE(policy.Judge(Failure(1, kExitRankCrashed), {1, 39}).again);
  EXPECT_EQ(policy.Judge(Failure(1, kExitHang), {1, 39}).pause, absl::Seconds(2));
  EXPECT_TRUE(policy.Judge(Failure(1, kExitHang), {2, 39}).again);  // another training's image
}

TEST(RestartPolicy, ThereMayBeALimit) {
  RestartPolicy policy(2);
  EXPECT_TRUE(policy.Judge(Failure(1, kExitRankCrashed), {1, 1}).again);
  EXPECT_TRUE(policy.Judge(Failure(1, kExitRankCrashed), {1, 2}).again);
  const auto last = policy.Judge(Failure(1, kExitRankCrashed), {1, 3});
  EXPECT_FALSE(last.again);
  EXPECT_NE(last.why.find("--max-restarts"), std::string::npos);
  EXPECT_TRUE(last.counted);
  EXPECT_FALSE(RestartPolicy(0).Judge(Failure(1, kExitRankCrashed), {1, 1}).again);
}

}  // namespace
}  // namespace mslua
