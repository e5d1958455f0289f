// The native backend with real processes: each test starts this binary again as its ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "collectives/backends/native/native.h"
#include "collectives/conformance.h"
#include "core/base/clock.h"

extern char** environ;

namespace mslua {
namespace {

using ::testing::HasSubstr;

constexpr char kVariable[] = "MSLUA_TEST_RANK";

// Runs test Rank.<part> in `n` processes.
class Ranks {
 public:
  Ranks(int n, const std::string& part) {
    char path[] = "/tmp/mslua-test-XXXXXX";
    folder_ = mkdtemp(path);
    const std::string filter = absl::StrCat("--gtest_filter=Rank.", part);
    for (int r = 0; r < n; ++r) {
      setenv(kVariable, absl::StrCat(r, " ", n, " ", folder_).c_str(), 1);
      const char* arguments[] = {"native_process_test", filter.c_str(), "--gtest_brief=1", nullptr};
      pid_t pid = 0;
      EXPECT_EQ(posix_spawn(&pid, "/proc/self/exe", nullptr, nullptr, const_cast<char**>(arguments), environ), 0);
      pids_.push_back(pid);
    }
    unsetenv(kVariable);
  }
  ~Ranks() {
    EXPECT_TRUE(std::filesystem::is_empty(folder_));
    std::filesystem::remove_all(folder_);
  }
  void Signal(int rank, int signal) { kill(pids_[rank], signal); }
  // 0, an exit code, or minus a signal.
  int Wait(int rank) {
    int status = 0;
    waitpid(pids_[rank], &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  int size() const { return static_cast<int>(pids_.size()); }

 private:
  std::string folder_;
  std::vector<pid_t> pids_;
};

std::unique_ptr<Communicator> World() {
  const char* text = getenv(kVariable);
  if (text == nullptr) return nullptr;
  char folder[200];
  NativeOptions options;
  if (sscanf(text, "%d %d %199s", &options.rank, &options.size, folder) != 3) return nullptr;
  options.folder = folder;
  auto made = MakeNativeWorld(options);
  EXPECT_TRUE(made.ok()) << made.status();
  return made.ok() ? std::move(*made) : nullptr;
}

TEST(Rank, Conformance) {
  auto comm = World();
  if (comm == nullptr) GTEST_SKIP() << "started by NativeProcesses";
  CheckCollectives(*comm);
  CheckGroups(*comm);
  CheckAsynchronous(*comm);
  CheckMessages(*comm);
  CheckShared(*comm);
}

// Continues until a peer dies or stops answering.
TEST(Rank, UntilDeath) {
  auto comm = World();
  if (comm == nullptr) GTEST_SKIP() << "started by NativeProcesses";
  constexpr int64_t kCount = 20000;
  std::vector<float> x(kCount, 1), all(comm->size() * kCount);
  // Through windows and out of the peers' memory.
  Call calls[] = {Call::AllReduce(ReduceOp::kMean, DType::kF32, x.data(), x.data(), kCount),
                  Call::AllGather(DType::kF32, x.data(), all.data(), kCount)};
  Status status;
  MonotonicTime begin;
  for (int i = 0; status.ok(); ++i) {
    begin = MonotonicNow();
    status = comm->Run(calls[i % 2].At("train.lua:88").Within(absl::Seconds(2)));
  }
  EXPECT_TRUE(absl::IsUnavailable(status) || absl::IsAborted(status) || absl::IsDeadlineExceeded(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("rank 1"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("train.lua:88"));
  // Ten times what a death (0.2 s) or a deadline takes.
  EXPECT_LT(MonotonicNow() - begin, absl::Seconds(20));
}

TEST(NativeProcesses, Conformance) {
  for (int n : {2, 4}) {
    Ranks ranks(n, "Conformance");
    for (int r = 0; r < n; ++r) EXPECT_EQ(ranks.Wait(r), 0) << "rank " << r;
  }
}

TEST(NativeProcesses, KilledRankIsNamed) {
  for (int milliseconds : {150, 333, 500}) {
    Ranks ranks(3, "UntilDeath");
    absl::SleepFor(absl::Milliseconds(1000 + milliseconds));
    ranks.Signal(1, SIGKILL);
    EXPECT_EQ(ranks.Wait(1), -SIGKILL);
    EXPECT_EQ(ranks.Wait(0), 0);
    EXPECT_EQ(ranks.Wait(2), 0);
  }
}

TEST(NativeProcesses, StoppedRankIsNamed) {
  Ranks ranks(3, "UntilDeath");
  absl::SleepFor(absl::Seconds(1));
  ranks.Signal(1, SIGSTOP);
  EXPECT_EQ(ranks.Wait(0), 0);
  EXPECT_EQ(ranks.Wait(2), 0);
  ranks.Signal(1, SIGKILL);
  ranks.Wait(1);
}

}  // namespace
}  // namespace mslua
