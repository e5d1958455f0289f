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
#include "rendezvous/rendezvous.h"

namespace mslua {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kPlayed[] = "MSLUA_TEST_RANK_1_ENDS";

// What another process of this program does, when the launcher starts it as a rank: joins, and leaves with 0 when the
// other one has ended. Rank 1 ends as the variable says: "before" it leaves, or "after" it has left with a code.
const bool is_rank = [] {
  const char* const meeting = getenv(kLauncherMeeting);
  if (getenv(kPlayed) == nullptr || meeting == nullptr) return false;
  JoinOptions options;
  options.scheduler = *ParseEndpoint(meeting);
  options.node_id = getenv(kLauncherRank);
  options.self.host = "host";
  options.who = absl::StrCat("pid ", getpid());
  auto member = Membership::Join(options);
  if (!member.ok()) _exit(kExitEnvironment);
  const std::string ends = getenv(kPlayed);
  if ((*member)->rank() == 1) {
    if (ends != "before") (*member)->Leave(atoi(ends.c_str()));
    kill(getpid(), SIGKILL);
  }
  absl::SleepFor(absl::Milliseconds(500));
  (*member)->Leave(0);
  (*member)->AwaitEnd(absl::Seconds(10)).IgnoreError();
  member->reset();  // its threads end, or ThreadSanitizer finds them
  _exit(0);
}();

// The exit code of a job of two such ranks, and what the launcher prints.
std::pair<int, std::string> RunTwo(const char* ends) {
  setenv(kPlayed, ends, 1);
  LaunchOptions options;
  char self[4096];
  const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
  EXPECT_GT(length, 0);
  options.command = {std::string(self, static_cast<size_t>(length))};
  testing::internal::CaptureStderr();
  const int code = RunRanks(options);
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

}  // namespace
}  // namespace mslua
