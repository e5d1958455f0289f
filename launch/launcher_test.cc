#include "launch/launcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/base/exit_code.h"
#include "rendezvous/identity.h"
#include "rendezvous/membership.h"

namespace mslua {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kPlayed[] = "MSLUA_TEST_RANK_1_ENDS";

// What another process of this program does, when the launcher starts it as a rank: joins, and leaves with 0 when the
// other one has ended. Rank 1 ends as the variable says: "before" it leaves, or after it has left with that code.
// Or it sends the launcher SIGTERM: "apart", before it joins, and ends by what is passed on; "together", when both have
// joined, and both leave with kExitCheckpointed, rank 0 later. Both ignore SIGTERM, but for rank 1 when it is "apart".
const bool is_rank = [] {
  const char* const meeting = getenv(kLauncherMeeting);
  if (getenv(kPlayed) == nullptr || meeting == nullptr) return false;
  const std::string ends = getenv(kPlayed);
  if (ends == "apart" && std::string(getenv(kLauncherRank)) == "1") {
    signal(SIGTERM, SIG_DFL);
    kill(getppid(), SIGTERM);
    while (true) pause();
  }
  JoinOptions options;
  options.scheduler = *ParseEndpoint(meeting);
  options.node_id = getenv(kLauncherRank);
  options.self.host = "host";
  options.who = absl::StrCat("pid ", getpid());
  auto member = Membership::Join(options);
  if (!member.ok()) _exit(kExitEnvironment);
  const int code = ends == "together" ? kExitCheckpointed : kExitOk;
  if ((*member)->rank() == 1 && ends == "together") {
    kill(getppid(), SIGTERM);
    (*member)->Leave(code);
    member->reset();
    _exit(code);
  }
  if ((*member)->rank() == 1) {
    if (ends != "before") (*member)->Leave(atoi(ends.c_str()));
    kill(getpid(), SIGKILL);
  }
  absl::SleepFor(absl::Milliseconds(500));
  (*member)->Leave(code);
  (*member)->AwaitEnd(absl::Seconds(10)).IgnoreError();
  member->reset();  // its threads end, or ThreadSanitizer finds them
  _exit(code);
}();

// The exit code of a job of two such ranks, and what the launcher prints.
std::pair<int, std::string> RunTwo(const char* ends, LaunchOptions options = {}) {
  setenv(kPlayed, ends, 1);
  const auto former = signal(SIGTERM, SIG_IGN);  // for the ranks; the launcher takes it all the same
  char self[4096];
  const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
  EXPECT_GT(length, 0);
  options.command = {std::string(self, static_cast<size_t>(length))};
  testing::internal::CaptureStderr();
  const int code = RunRanks(options);
  signal(SIGTERM, former);
  unsetenv(kPlayed);
  return {code, testing::internal::GetCapturedStderr()};
}

TEST(Launcher, ARankThatIsKilledAfterItHasLeftIsDone) {
  for (int i = 0; i < 5; ++i) {
    const auto [code, said] = RunTwo("0");
    EXPECT_EQ(code, 0) << said;
    EXPECT_THAT(said, HasSubstr("was killed by signal 9 (Killed) after it had finished"));
  }
  EXPECT_EQ(RunTwo("75").first, 75);
}

TEST(Launcher, ARankThatIsKilledBeforeItHasLeftEndsTheJob) {
  const auto [code, said] = RunTwo("before");
  EXPECT_EQ(code, kExitRankCrashed) << said;
  EXPECT_THAT(said, HasSubstr("rank 1/2"));
  EXPECT_THAT(said, HasSubstr("was killed by signal 9 (Killed)"));
  EXPECT_THAT(said, Not(HasSubstr("after it had finished")));
}

TEST(Launcher, ARankThatASignalEndsBeforeAllHaveMetEndsTheOthers) {
  const auto [code, said] = RunTwo("apart");
  EXPECT_EQ(code, kExitInterrupted) << said;
  EXPECT_THAT(said, HasSubstr("stopping; once more to stop at once"));
  EXPECT_THAT(said, Not(HasSubstr("mslua: error")));
}

TEST(Launcher, RanksThatHaveMetLeaveOneAfterAnotherAfterASignal) {
  LaunchOptions options;
  options.end_limit = absl::ZeroDuration();  // a rank that is not left to end by itself is killed at once
  const auto [code, said] = RunTwo("together", options);
  EXPECT_EQ(code, kExitCheckpointed) << said;
  EXPECT_THAT(said, HasSubstr("stopping; once more to stop at once"));
}

}  // namespace
}  // namespace mslua
