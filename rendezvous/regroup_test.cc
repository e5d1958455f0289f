// A job that starts again: who has died is waited for, the others join again. (tests/recovery kills schedulers.)
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/base/clock.h"
#include "core/base/exit_code.h"
#include "rendezvous/membership.h"
#include "rendezvous/scheduler.h"
#include "rendezvous/socket.h"

namespace mslua {
namespace {

using ::testing::HasSubstr;

constexpr char kSecret[] = "the secret of a test";
using Member = std::unique_ptr<Membership>;

// Waits, as long as it takes on a busy host.
bool Eventually(const std::function<bool()>& holds) {
  const MonotonicTime deadline = MonotonicNow() + absl::Seconds(60);
  while (!holds()) {
    if (MonotonicNow() >= deadline) return false;
    absl::SleepFor(absl::Milliseconds(5));
  }
  return true;
}

class Regroup : public ::testing::Test {
 protected:
  void Start(int workers, uint16_t port = 0, int spares = 0, bool recover = true) {
    SchedulerOptions options;
    options.spares = spares;
    options.endpoint = {"127.0.0.1", port};
    options.secret = secret_;
    options.workers = workers;
    options.recover = recover;
    options.on_epoch = [this](const JobEpoch& e) {
      epoch_ = e.number;
      return keeps_;
    };
    options.log = [this](const std::string& line) {
      const std::lock_guard<std::mutex> lock(mutex_);
      absl::StrAppend(&log_, line, "\n");
    };
    auto scheduler = Scheduler::Start(options);
    ASSERT_TRUE(scheduler.ok()) << scheduler.status();
    scheduler_ = *std::move(scheduler);
  }
  JoinOptions Worker(const std::string& id) {
    JoinOptions join;
    join.scheduler = scheduler_ == nullptr ? elsewhere_ : scheduler_->endpoint();
    join.secret = kSecret;
    join.node_id = id;
    join.self = {"h", {"127.0.0.1", 1000}};
    join.timeout = absl::Seconds(60);
    join.recover = true;
    join.turn = [this] { return turn_.load(); };
    join.on_stop = [this](int) { ++stops_; };
    return join;
  }
  std::vector<Member> JoinAll(const std::vector<std::string>& ids) {
    std::vector<Member> members(ids.size());
    std::vector<std::thread> threads;
    for (size_t i = 0; i < ids.size(); ++i) {
      threads.emplace_back([&, i] {
        auto made = Membership::Join(Worker(ids[i]));
        EXPECT_TRUE(made.ok()) << made.status();
        if (made.ok()) members[i] = *std::move(made);
      });
    }
    for (std::thread& t : threads) t.join();
    return members;
  }
  std::string log() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return log_;
  }

  // Starts a scheduler in another process, which can be killed.
  pid_t StartElsewhere(int workers) {
    int pipes[2];
    EXPECT_EQ(pipe(pipes), 0);
    const pid_t child = fork();
    if (child == 0) {
      Start(workers);
      const uint16_t own = scheduler_->endpoint().port;
      while (write(pipes[1], &own, sizeof own) > 0) pause();
      _exit(0);
    }
    elsewhere_.host = "127.0.0.1";
    EXPECT_EQ(read(pipes[0], &elsewhere_.port, sizeof elsewhere_.port), static_cast<ssize_t>(sizeof elsewhere_.port));
    for (const int end : pipes) close(end);
    return child;
  }
  static void Kill(pid_t child) {
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
  }

  std::string secret_ = kSecret;  // of schedulers
  Status keeps_;                  // what keeping an epoch gives
  std::mutex mutex_;
  std::string log_;
  std::atomic<int64_t> epoch_{0}, turn_{0}, stops_{0};
  std::unique_ptr<Scheduler> scheduler_;
  Endpoint elsewhere_;  // of a scheduler in another process
};

TEST_F(Regroup, TheOthersJoinAnewWhenAWorkerHasDied) {
  Start(3);
  auto members = JoinAll({"worker_0", "worker_1", "worker_2"});
  const std::string job = members[0]->job();
  members[1].reset();  // it ends without leaving
  for (const int r : {0, 2}) {
    ASSERT_TRUE(Eventually([&] { return !members[r]->Health().ok(); }));
    EXPECT_TRUE(StartsAgain(members[r]->Health()));
    EXPECT_THAT(std::string(members[r]->Health().message()), HasSubstr("rank 1/3"));
    EXPECT_EQ(CauseOf(members[r]->Health()).exit_code, kExitRankCrashed);
  }
  members.clear();
  members = JoinAll({"worker_2", "worker_0", "worker_1"});
  EXPECT_EQ(members[0]->rank(), 2);
  EXPECT_EQ(members[1]->rank(), 0);
  EXPECT_EQ(members[2]->rank(), 1);
  EXPECT_NE(members[0]->job(), job);  // what the old ones send is of another job
  EXPECT_EQ(epoch_, 2);
  for (auto& m : members) m->Leave(0);
  EXPECT_TRUE(scheduler_->Wait().ok());
}

TEST_F(Regroup, AWorkerMayDieWhileTheOthersJoinAnew) {
  Start(2);
  for (int i = 0; i < 5; ++i) {
    turn_ = i;  // there is progress
    auto members = JoinAll({"0", "1"});
    members[static_cast<size_t>(i % 2)].reset();
    const auto& other = members[static_cast<size_t>(1 - i % 2)];
    ASSERT_TRUE(Eventually([&] { return StartsAgain(other->Health()); }));
    // One that joins and goes before all have come is nobody's loss.
    std::thread([&] {
      JoinOptions join = Worker("1");
      join.timeout = absl::Milliseconds(1);
      join.recover = false;
      Membership::Join(join).IgnoreError();
    }).join();
  }
  auto members = JoinAll({"0", "1"});
  for (auto& m : members) m->Leave(0);
  EXPECT_TRUE(scheduler_->Wait().ok());
}

TEST_F(Regroup, AStopIsKeptWhenTheWorkersJoinAgain) {
  Start(2);
  auto members = JoinAll({"0", "1"});
  scheduler_->Stop(SIGTERM);
  ASSERT_TRUE(Eventually([&] { return stops_ == 2; }));
  members[1].reset();  // it dies before it has stopped
  ASSERT_TRUE(Eventually([&] { return StartsAgain(members[0]->Health()); }));
  members.clear();
  members = JoinAll({"0", "1"});
  EXPECT_TRUE(Eventually([&] { return stops_ == 4; }));
  for (auto& m : members) m->Leave(0);
  EXPECT_TRUE(scheduler_->Wait().ok());
}

TEST_F(Regroup, AnErrorThatWouldComeBackEndsTheJob) {
  Start(2);
  auto members = JoinAll({"0", "1"});
  members[0]->Abort(absl::InvalidArgumentError("boom"), kExitUsage);
  ASSERT_TRUE(Eventually([&] { return !members[1]->Health().ok(); }));
  EXPECT_FALSE(StartsAgain(members[1]->Health()));
  EXPECT_EQ(CauseOf(scheduler_->Wait()).exit_code, kExitUsage);
}

TEST_F(Regroup, TheSameFailureThreeTimesEndsTheJob) {
  Start(2);
  turn_ = 7;
  for (int i = 0; i < 3; ++i) {
    auto members = JoinAll({"0", "1"});
    members[0]->Abort(absl::UnavailableError("it hangs"), kExitHang);
    ASSERT_TRUE(Eventually([&] { return !members[1]->Health().ok(); }));
    EXPECT_EQ(StartsAgain(members[1]->Health()), i < 2) << i;
  }
  EXPECT_EQ(CauseOf(scheduler_->Wait()).exit_code, kExitHang);
  EXPECT_THAT(log(), HasSubstr("3 times in the same way"));
}

TEST_F(Regroup, AnEpochThatCannotBeKeptEndsTheStart) {
  keeps_ = absl::ResourceExhaustedError("the disk is full");
  Start(1);
  const auto made = Membership::Join(Worker("0"));
  EXPECT_THAT(made.status().message(), HasSubstr("the disk is full"));
  EXPECT_EQ(CauseOf(made.status()).exit_code, kExitStorage);
  const Status end = scheduler_->Wait();
  EXPECT_EQ(CauseOf(end).exit_code, kExitStorage);
}

TEST_F(Regroup, AWorkerThatHasLeftDoesNotJoinTheNextSchedulerThatAnswers) {
  Start(2);
  auto members = JoinAll({"0", "1"});
  for (auto& m : members) m->Leave(0);
  const uint16_t port = scheduler_->endpoint().port;
  EXPECT_TRUE(scheduler_->Wait().ok());
  scheduler_.reset();
  Start(2, port);
  for (auto& m : members) {
    EXPECT_TRUE(m->AwaitEnd(absl::Seconds(60)).ok());
    EXPECT_FALSE(m->lost_scheduler());
  }
}

// As the socket of a scheduler that is being killed does for a moment, this one takes connections.
TEST_F(Regroup, ASocketThatNobodyReadsIsNoScheduler) {
  const pid_t child = StartElsewhere(2);
  auto members = JoinAll({"0", "1"});
  Kill(child);
  {
    const auto listener = ListenTcp(elsewhere_);
    ASSERT_TRUE(listener.ok()) << listener.status();
    pollfd entry = {listener->get(), POLLIN, 0};
    ASSERT_EQ(poll(&entry, 1, 60000), 1);  // somebody has connected
    absl::SleepFor(absl::Milliseconds(300));
    for (auto& m : members) EXPECT_TRUE(m->Health().ok()) << m->Health();
  }
  Start(2, elsewhere_.port);
  for (auto& m : members) {
    ASSERT_TRUE(Eventually([&] { return !m->Health().ok(); }));
    EXPECT_TRUE(StartsAgain(m->Health()));
    EXPECT_THAT(std::string(m->Health().message()), HasSubstr("was started again"));
  }
  members.clear();
  members = JoinAll({"0", "1"});
  for (auto& m : members) m->Leave(0);
  EXPECT_TRUE(scheduler_->Wait().ok());
  EXPECT_THAT(log(), testing::Not(HasSubstr("refused a connection")));
}

// The worker is to hear of it when it joins, and does not wait for another scheduler.
TEST_F(Regroup, ASchedulerThatRefusesAWorkerAnswers) {
  const pid_t child = StartElsewhere(1);
  auto members = JoinAll({"0"});
  Kill(child);
  secret_ = "another secret";
  Start(1, elsewhere_.port);
  ASSERT_TRUE(Eventually([&] { return StartsAgain(members[0]->Health()); }));
  JoinOptions again = Worker("0");
  const auto refused = Membership::Join(again);
  EXPECT_TRUE(absl::IsPermissionDenied(refused.status())) << refused.status();
  secret_ = kSecret;
}

TEST_F(Regroup, AnEndBeforeAllHaveLeftIsHeardByThoseThatHaveNot) {
  Start(3);
  auto members = JoinAll({"0", "1", "2"});
  members[0].reset();  // it ends without leaving, and nobody has left
  const Status end = members[1]->AwaitEnd(absl::Seconds(60));
  EXPECT_TRUE(StartsAgain(end)) << end;
}

// The scheduler of a launcher, which starts the ranks again itself: the memory of the first one is still needed.
TEST_F(Regroup, AnEndBeforeAllHaveLeftIsHeardByThoseThatHave) {
  Start(2, /*port=*/0, /*spares=*/0, /*recover=*/false);
  auto members = JoinAll({"0", "1"});
  members[0]->Leave(0);
  EXPECT_TRUE(absl::IsDeadlineExceeded(members[0]->AwaitEnd(absl::Milliseconds(100))));
  members[1].reset();
  const Status end = members[0]->AwaitEnd(absl::Seconds(60));
  EXPECT_FALSE(end.ok());
  EXPECT_EQ(CauseOf(end).exit_code, kExitRankCrashed) << end;
  EXPECT_FALSE(scheduler_->Wait().ok());
}

TEST_F(Regroup, WhoHasLeftIsKnownAfterItsConnectionHasEnded) {
  Start(2, /*port=*/0, /*spares=*/0, /*recover=*/false);
  auto members = JoinAll({"0", "1"});
  const int first = members[0]->rank(), other = members[1]->rank();
  EXPECT_FALSE(scheduler_->LeftWith(first).has_value());
  members[0]->Leave(3);
  members[0].reset();
  ASSERT_TRUE(Eventually([&] { return scheduler_->LeftWith(first).has_value(); }));
  EXPECT_EQ(*scheduler_->LeftWith(first), 3);
  EXPECT_FALSE(scheduler_->LeftWith(other).has_value());
  EXPECT_TRUE(scheduler_->Outcome().ok());
  members[1]->Leave(0);
  EXPECT_TRUE(scheduler_->Wait().ok());
}

TEST_F(Regroup, ANameWhoseProcessAnswersIsTaken) {
  Start(2);
  auto members = JoinAll({"worker_0", "worker_1"});
  const auto second = Membership::Join(Worker("worker_1"));
  ASSERT_FALSE(second.ok());
  EXPECT_THAT(std::string(second.status().message()), HasSubstr("the cluster is complete"));
  EXPECT_TRUE(members[1]->Health().ok());
  for (auto& m : members) m->Leave(0);
  EXPECT_TRUE(scheduler_->Wait().ok());
}

}  // namespace
}  // namespace mslua
