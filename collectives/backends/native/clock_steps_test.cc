// Steps of the calendar clock, as an operator's or a time service's: no deadline and no heartbeat may follow them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "collectives/backends/native/native.h"
#include "collectives/conformance.h"
#include "rendezvous/heartbeat_timeout.h"
#include "rendezvous/membership.h"
#include "rendezvous/scheduler.h"

namespace {
std::atomic<int64_t> shift_s{0};  // of the calendar clock
}

// These take the place of the C library's for this program.
extern "C" int clock_gettime(clockid_t clock, timespec* t) noexcept {
  const int status = static_cast<int>(syscall(SYS_clock_gettime, clock, t));
  if (clock == CLOCK_REALTIME) t->tv_sec += shift_s;
  return status;
}
extern "C" int gettimeofday(timeval* t, void* zone) noexcept {
  const int status = static_cast<int>(syscall(SYS_gettimeofday, t, zone));
  t->tv_sec += shift_s;
  return status;
}
extern "C" time_t time(time_t* t) noexcept {
  timeval now;
  gettimeofday(&now, nullptr);
  if (t != nullptr) *t = now.tv_sec;
  return now.tv_sec;
}

namespace mslua {
namespace {

using ::testing::HasSubstr;

constexpr char kSecret[] = "the secret of a test";

class ClockSteps : public ::testing::TestWithParam<int64_t> {
 protected:
  void TearDown() override { shift_s = 0; }
};

std::vector<std::unique_ptr<Membership>> JoinAll(Scheduler& scheduler, int workers, absl::Duration timeout) {
  std::vector<std::unique_ptr<Membership>> made(workers);
  std::vector<std::thread> threads;
  for (int r = 0; r < workers; ++r) {
    threads.emplace_back([&, r] {
      JoinOptions join;
      join.scheduler = scheduler.endpoint();
      join.secret = kSecret;
      join.node_id = absl::StrCat(r);
      join.self = {"h", {"127.0.0.1", 1000}};
      join.timeout = timeout;
      auto membership = Membership::Join(join);
      ASSERT_TRUE(membership.ok()) << membership.status();
      made[r] = std::move(*membership);
    });
  }
  for (std::thread& t : threads) t.join();
  return made;
}

TEST_P(ClockSteps, RanksLiveOn) {
  SchedulerOptions options;
  options.endpoint = {"127.0.0.1", 0};
  options.secret = kSecret;
  options.workers = 2;
  auto scheduler = Scheduler::Start(options);
  ASSERT_TRUE(scheduler.ok()) << scheduler.status();
  auto workers = JoinAll(**scheduler, 2, absl::Minutes(10));
  ASSERT_NE(workers[0], nullptr);
  ASSERT_NE(workers[1], nullptr);
  shift_s = GetParam();
  absl::SleepFor(kHeartbeatTimeout + absl::Milliseconds(500));
  EXPECT_TRUE(workers[0]->Health().ok()) << workers[0]->Health();
  std::thread other([&] {
    const Status same = workers[1]->Compare("graph", "1", absl::Minutes(1));
    EXPECT_TRUE(same.ok()) << same;
  });
  const Status same = workers[0]->Compare("graph", "1", absl::Minutes(1));
  EXPECT_TRUE(same.ok()) << same;
  other.join();
  for (auto& worker : workers) worker->Leave(0);
  EXPECT_TRUE((*scheduler)->Wait().ok());
}

TEST_P(ClockSteps, MissingWorkersAreAwaitedAsLongAsWasSaid) {
  SchedulerOptions options;
  options.endpoint = {"127.0.0.1", 0};
  options.secret = kSecret;
  options.workers = 2;
  options.timeout = absl::Seconds(2);
  auto scheduler = Scheduler::Start(options);
  ASSERT_TRUE(scheduler.ok()) << scheduler.status();
  timespec begin, end;
  clock_gettime(CLOCK_MONOTONIC, &begin);
  absl::SleepFor(absl::Milliseconds(300));
  shift_s = GetParam();
  EXPECT_THAT(std::string((*scheduler)->Wait().message()), HasSubstr("only 0 of 2 workers came within 2s"));
  clock_gettime(CLOCK_MONOTONIC, &end);
  EXPECT_GE(end.tv_sec - begin.tv_sec, 1);
  EXPECT_LT(end.tv_sec - begin.tv_sec, 600);
}

TEST_P(ClockSteps, CollectivesWaitAsLongAsWasSaid) {
  char path[] = "/tmp/mslua-test-XXXXXX";
  const std::string folder = mkdtemp(path);
  const auto make = [&](int rank, int size) {
    NativeOptions options;
    options.rank = rank;
    options.size = size;
    options.folder = folder;
    return MakeNativeWorld(options);
  };
  OnThreads(2, make, [](Communicator& comm) {
    int32_t x = 1;
    if (comm.rank() == 1) absl::SleepFor(absl::Milliseconds(300));
    if (comm.rank() == 1) shift_s = GetParam();
    if (comm.rank() == 1) absl::SleepFor(absl::Milliseconds(700));
    const Status late = comm.Run(Call::AllReduce(ReduceOp::kSum, DType::kI32, &x, &x, 1).Within(absl::Minutes(10)));
    EXPECT_TRUE(late.ok()) << late;
    EXPECT_EQ(x, 2);
    // A rank that does not come is noticed.
    if (comm.rank() == 1) {
      absl::SleepFor(absl::Milliseconds(300));
      shift_s = 0;
      absl::SleepFor(absl::Milliseconds(700));
      return;
    }
    const Status missing = comm.Run(Call::Barrier().Within(absl::Milliseconds(600)));
    EXPECT_FALSE(missing.ok());
  });
  std::filesystem::remove_all(folder);
}

INSTANTIATE_TEST_SUITE_P(By, ClockSteps, ::testing::Values(3600, -3600, 4, -4), [](const auto& info) {
  return absl::StrCat(info.param < 0 ? "Minus" : "Plus", std::abs(info.param), "s");
});

}  // namespace
}  // namespace mslua
