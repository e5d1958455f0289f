// Who is stopped, gone or asked to stop: the scheduler in a process of its own, which the tests stop and kill.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "rendezvous/handshake.h"
#include "rendezvous/heartbeat_timeout.h"
#include "rendezvous/membership.h"
#include "rendezvous/scheduler.h"

namespace mslua {
namespace {

using ::testing::HasSubstr;

constexpr char kSecret[] = "the secret of a test";

// No test depends on when it happens.
template <class Condition>
bool Eventually(Condition condition) {
  for (int i = 0; i < 60000 && !condition(); ++i) absl::SleepFor(absl::Milliseconds(1));
  return condition();
}

JoinOptions Worker(const Endpoint& scheduler, const std::string& id) {
  JoinOptions join;
  join.scheduler = scheduler;
  join.secret = kSecret;
  join.node_id = id;
  join.self = {"h", {"127.0.0.1", 1000}};
  join.who = absl::StrCat("pid ", 1000 + atoi(id.c_str()), ", host h");
  join.timeout = absl::Seconds(60);
  return join;
}

SchedulerOptions OptionsFor(int workers) {
  SchedulerOptions options;
  options.endpoint = {"127.0.0.1", 0};
  options.secret = kSecret;
  options.workers = workers;
  options.who = absl::StrCat("pid ", getpid(), ", host h");
  return options;
}

class Heartbeats : public ::testing::Test {
 protected:
  ~Heartbeats() override {
    if (pid_ == 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  // Rank 0 of `workers`, as far as others see: a process that runs the scheduler. Called before there are threads.
  void StartProcess(int workers) {
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    pid_ = fork();
    if (pid_ == 0) {
      SchedulerOptions options = OptionsFor(workers);
      options.rank = 0;
      auto scheduler = Scheduler::Start(options);
      const uint16_t port = scheduler.ok() ? (*scheduler)->endpoint().port : 0;
      if (write(ends[1], &port, sizeof port) != sizeof port) _exit(1);
      while (true) pause();
    }
    uint16_t port = 0;
    ASSERT_EQ(read(ends[0], &port, sizeof port), static_cast<ssize_t>(sizeof port));
    endpoint_ = {"127.0.0.1", port};
  }
  Status OfItsEnd(Membership& member) {
    EXPECT_TRUE(Eventually([&] { return !member.Health().ok(); }));
    return member.Health();
  }

  pid_t pid_ = 0;
  Endpoint endpoint_;
};

TEST_F(Heartbeats, StoppedSchedulerIsNamed) {
  StartProcess(1);
  auto member = Membership::Join(Worker(endpoint_, "0"));
  ASSERT_TRUE(member.ok()) << member.status();
  kill(pid_, SIGSTOP);
  const Status why = OfItsEnd(**member);
  EXPECT_THAT(std::string(why.message()),
              HasSubstr(absl::StrCat("rank 0 (pid ", pid_, ", host h) has given no sign of life for 2.5s")));
  EXPECT_EQ(CauseOf(why).rank, 0);
  EXPECT_EQ(CauseOf(why).exit_code, kExitHang);
  EXPECT_TRUE((*member)->lost_scheduler());
}

TEST_F(Heartbeats, StoppedSchedulerIsNamedWhileOthersAreAwaited) {
  StartProcess(2);
  std::thread stopper([this] {
    absl::SleepFor(absl::Seconds(1));
    kill(pid_, SIGSTOP);
  });
  const auto member = Membership::Join(Worker(endpoint_, "1"));
  stopper.join();
  ASSERT_FALSE(member.ok());
  EXPECT_THAT(std::string(member.status().message()), HasSubstr(absl::StrCat("rank 0 (pid ", pid_, ", host h)")));
  EXPECT_EQ(CauseOf(member.status()).exit_code, kExitHang);
}

TEST_F(Heartbeats, DeadSchedulerIsNamed) {
  StartProcess(1);
  auto member = Membership::Join(Worker(endpoint_, "0"));
  ASSERT_TRUE(member.ok()) << member.status();
  kill(pid_, SIGKILL);
  const Status why = OfItsEnd(**member);
  EXPECT_THAT(std::string(why.message()),
              HasSubstr(absl::StrCat("rank 0 (pid ", pid_, ", host h) has ended without leaving the job")));
  EXPECT_EQ(CauseOf(why).rank, 0);
  EXPECT_EQ(CauseOf(why).exit_code, kExitRankCrashed);
}

TEST_F(Heartbeats, WorkerWithoutASchedulerSaysWhatItTries) {
  Endpoint nowhere;
  {
    const Fd listener = *ListenTcp({"127.0.0.1", 0});
    nowhere = *LocalEndpoint(listener);
  }
  std::vector<std::string> lines;
  JoinOptions join = Worker(nowhere, "1");
  join.timeout = absl::Seconds(5);
  join.waiting = [&](const std::string& line) { lines.push_back(line); };
  const auto member = Membership::Join(join);
  EXPECT_EQ(member.status().code(), absl::StatusCode::kDeadlineExceeded) << member.status();
  ASSERT_FALSE(lines.empty());
  EXPECT_THAT(lines[0], HasSubstr(absl::StrCat("waiting for the scheduler at ", ToString(nowhere))));
  EXPECT_THAT(lines[0], HasSubstr("trying for another "));
}

// As when a laptop sleeps, or a batch system suspends a job.
TEST_F(Heartbeats, WholeJobMayBeStopped) {
  StartProcess(1);
  const pid_t me = getpid(), scheduler = pid_;
  const pid_t stopper = fork();
  if (stopper == 0) {
    absl::SleepFor(absl::Seconds(1));
    for (const pid_t pid : {scheduler, me}) kill(pid, SIGSTOP);
    absl::SleepFor(absl::Seconds(5));
    for (const pid_t pid : {me, scheduler}) kill(pid, SIGCONT);
    _exit(0);
  }
  auto member = Membership::Join(Worker(endpoint_, "0"));
  ASSERT_TRUE(member.ok()) << member.status();
  waitpid(stopper, nullptr, 0);
  absl::SleepFor(kHeartbeatTimeout + absl::Seconds(1));
  EXPECT_TRUE((*member)->Health().ok()) << (*member)->Health();
  (*member)->Leave(0);
}

// The first one has come and is silent while the second is awaited.
TEST_F(Heartbeats, SilentWorkerIsNamedBeforeAllHaveCome) {
  std::mutex mutex;
  std::vector<std::string> causes;
  SchedulerOptions options = OptionsFor(3);
  options.heartbeat_limit = absl::Milliseconds(1200);
  options.on_cause = [&](const Status& why) {
    const std::lock_guard<std::mutex> lock(mutex);
    causes.emplace_back(why.message());
  };
  auto scheduler = Scheduler::Start(options);
  ASSERT_TRUE(scheduler.ok()) << scheduler.status();
  const MonotonicTime soon = MonotonicNow() + absl::Seconds(60);
  Fd socket = *ConnectTcp((*scheduler)->endpoint(), soon);
  auto seals = Authenticate(socket, kSecret, {}, soon);
  ASSERT_TRUE(seals.ok()) << seals.status();
  const ControlMessage join = {ControlMessage::Type::kJoin, {{"id", "1"}, {"who", "pid 7, host x"}}};
  ASSERT_TRUE(SendAll(socket, EncodeSealed(join, seals->send), soon).ok());
  const auto other = Membership::Join(Worker((*scheduler)->endpoint(), "0"));
  EXPECT_THAT(std::string(other.status().message()),
              HasSubstr("rank 1/3 (pid 7, host x) has given no sign of life for 1.2s"));
  EXPECT_EQ(CauseOf(other.status()).rank, 1);
  EXPECT_EQ(CauseOf(other.status()).exit_code, kExitHang);
  EXPECT_EQ((*scheduler)->Wait().code(), absl::StatusCode::kUnavailable);
  ASSERT_EQ(causes.size(), 1u);  // said before the others have heard
}

TEST_F(Heartbeats, StopReachesAllAndTheirExitCodeIsTheJobs) {
  auto scheduler = Scheduler::Start(OptionsFor(2));
  ASSERT_TRUE(scheduler.ok()) << scheduler.status();
  std::atomic<int> signals[2] = {};
  std::unique_ptr<Membership> members[2];
  std::vector<std::thread> threads;
  for (int r = 0; r < 2; ++r) {
    threads.emplace_back([&, r] {
      JoinOptions join = Worker((*scheduler)->endpoint(), absl::StrCat(r));
      join.on_stop = [&signals, r](int signal) { signals[r] = signal; };
      auto member = Membership::Join(join);
      ASSERT_TRUE(member.ok()) << member.status();
      members[r] = std::move(*member);
    });
  }
  for (std::thread& t : threads) t.join();
  (*scheduler)->Stop(SIGTERM);
  for (int r = 0; r < 2; ++r) EXPECT_TRUE(Eventually([&] { return signals[r] == SIGTERM; })) << r;
  members[0]->Leave(0);
  members[1]->Leave(kExitCheckpointed);
  EXPECT_TRUE((*scheduler)->Wait().ok());
  EXPECT_EQ((*scheduler)->exit_code(), kExitCheckpointed);
}

TEST_F(Heartbeats, StopBeforeAllHaveComeEndsTheJob) {
  auto scheduler = Scheduler::Start(OptionsFor(2));
  ASSERT_TRUE(scheduler.ok()) << scheduler.status();
  (*scheduler)->Stop(SIGTERM);
  const Status over = (*scheduler)->Wait();
  EXPECT_THAT(std::string(over.message()), HasSubstr("before all workers had come"));
  EXPECT_EQ(CauseOf(over).exit_code, kExitInterrupted);
}

}  // namespace
}  // namespace mslua
