#include "launch/stopped_ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/base/exit_code.h"
#include "rendezvous/cause.h"

namespace mslua {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

// What another process of this program does, when it is started as a rank.
const bool is_rank = [] {
  while (getenv("MSLUA_TEST_RANK_WAITS") != nullptr) pause();
  return false;
}();

class StoppedRanks : public ::testing::Test {
 protected:
  ~StoppedRanks() override {
    for (const pid_t pid : pids_) {
      kill(pid, SIGKILL);
      waitpid(pid, nullptr, 0);
    }
  }
  Environment Of(int rank, int port) const {
    return {{"RANK", absl::StrCat(rank)},
            {"WORLD_SIZE", "2"},
            {"MASTER_ADDR", "127.0.0.1"},
            {"MASTER_PORT", absl::StrCat(port)},
            {"MSLUA_TEST_RANK_WAITS", "1"}};
  }
  // A rank, which this gives `signal` and which has then taken it.
  pid_t Start(const Environment& environment, int signal) {
    std::vector<std::string> texts;
    for (const auto& [name, value] : environment) texts.push_back(absl::StrCat(name, "=", value));
    std::vector<char*> variables;
    for (std::string& text : texts) variables.push_back(text.data());
    variables.push_back(nullptr);
    char* arguments[] = {const_cast<char*>("rank"), nullptr};
    pid_t pid = 0;
    EXPECT_EQ(posix_spawn(&pid, "/proc/self/exe", nullptr, nullptr, arguments, variables.data()), 0);
    pids_.push_back(pid);
    kill(pid, signal);
    int status = 0;
    if (signal == SIGSTOP) {
      EXPECT_EQ(waitpid(pid, &status, WUNTRACED), pid);
    }
    return pid;
  }
  std::vector<pid_t> pids_;
};

TEST_F(StoppedRanks, AreFoundByJobAndState) {
  const Environment mine = Of(0, 4711);
  EXPECT_THAT(FindStoppedRanks(mine), IsEmpty());
  Start(Of(1, 4712), SIGSTOP);  // of another job
  Start(Of(0, 4711), SIGCONT);  // runs
  EXPECT_THAT(FindStoppedRanks(mine), IsEmpty());
  const pid_t pid = Start(Of(1, 4711), SIGSTOP);
  const auto found = FindStoppedRanks(mine);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].pid, pid);
  EXPECT_EQ(found[0].rank, 1);
  EXPECT_THAT(found[0].name, HasSubstr(absl::StrCat("rank 1/2 (pid ", pid, ", host ")));
  EXPECT_THAT(FindStoppedRanks(mine, "/nonexistent"), IsEmpty());
}

TEST_F(StoppedRanks, AreReportedWhenTheyDoNotGoOn) {
  std::atomic<bool> reported{false};
  Status why;
  const pid_t pid = Start(Of(1, 4711), SIGSTOP);
  StoppedRankWatch watch(Of(0, 4711), absl::Seconds(1), [&](const Status& status) {
    why = status;
    reported = true;
  });
  for (int i = 0; i < 600 && !reported; ++i) absl::SleepFor(absl::Milliseconds(100));
  ASSERT_TRUE(reported);
  EXPECT_THAT(std::string(why.message()), HasSubstr(absl::StrCat("rank 1/2 (pid ", pid)));
  EXPECT_THAT(std::string(why.message()), HasSubstr("was stopped by a signal and did not continue for 1s"));
  EXPECT_EQ(CauseOf(why).rank, 1);
  EXPECT_EQ(CauseOf(why).exit_code, kExitHang);
}

}  // namespace
}  // namespace mslua
