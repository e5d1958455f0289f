#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>

#include <filesystem>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/base/clock.h"
#include "core/base/rng.h"
#include "rendezvous/membership.h"
#include "rendezvous/scheduler.h"

namespace mslua {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kSecret[] = "the secret of a test";

class Cluster : public ::testing::Test {
 protected:
  void Start(int workers) {
    options_.endpoint = {"127.0.0.1", 0};
    options_.secret = kSecret;
    options_.workers = workers;
    options_.log = [this](const std::string& line) {
      std::lock_guard<std::mutex> lock(mutex_);
      absl::StrAppend(&log_, line, "\n");
    };
    auto scheduler = Scheduler::Start(options_);
    ASSERT_TRUE(scheduler.ok()) << scheduler.status();
    scheduler_ = std::move(*scheduler);
  }
  JoinOptions Worker(const std::string& id, const std::string& host = "h") const {
    JoinOptions join;
    join.scheduler = scheduler_->endpoint();
    join.secret = kSecret;
    join.node_id = id;
    join.self = {host, {"127.0.0.1", 1000}};
    join.timeout = absl::Seconds(10);
    return join;
  }
  // Joins all at once.
  std::vector<StatusOr<std::unique_ptr<Membership>>> JoinAll(const std::vector<JoinOptions>& joins) {
    std::vector<StatusOr<std::unique_ptr<Membership>>> made(joins.size());
    std::vector<std::thread> threads;
    for (size_t i = 0; i < joins.size(); ++i) threads.emplace_back([&, i] { made[i] = Membership::Join(joins[i]); });
    for (std::thread& t : threads) t.join();
    return made;
  }
  static MonotonicTime Soon() { return MonotonicNow() + absl::Seconds(30); }
  // A connection whose join the scheduler has taken.
  std::pair<Fd, Seals> JoinByHand(const std::string& id) {
    Fd socket = *ConnectTcp(scheduler_->endpoint(), Soon());
    auto seals = Authenticate(socket, kSecret, {}, Soon());
    EXPECT_TRUE(seals.ok()) << seals.status();
    std::pair<Fd, Seals> joined(std::move(socket), *seals);
    const ControlMessage join = {ControlMessage::Type::kJoin, {{"id", id}}};
    EXPECT_TRUE(SendAll(joined.first, EncodeSealed(join, joined.second.send), Soon()).ok());
    ReceiveUntil(joined, ControlMessage::Type::kProgress);
    return joined;
  }
  static void ReceiveUntil(std::pair<Fd, Seals>& joined, ControlMessage::Type type) {
    while (true) {
      const auto message = ReceiveControl(joined.first, joined.second.receive, Soon());
      ASSERT_TRUE(message.ok()) << message.status();
      if (message->type == type) return;
    }
  }
  static bool EndsSoon(const Fd& socket) {
    char byte;
    Status status;
    while (status.ok()) status = ReceiveAll(socket, &byte, 1, Soon());
    return absl::IsUnavailable(status);
  }
  static std::string LocalRoot() {
    char path[] = "/tmp/mslua-test-XXXXXX";
    setenv("XDG_RUNTIME_DIR", mkdtemp(path), 1);
    return path;
  }
  std::string log() {
    std::lock_guard<std::mutex> lock(mutex_);
    return log_;
  }

  SchedulerOptions options_;
  std::mutex mutex_;
  std::string log_;
  std::unique_ptr<Scheduler> scheduler_;
};

TEST_F(Cluster, RanksByNumericIds) {
  Start(3);
  auto made = JoinAll({Worker("2"), Worker("0", "g"), Worker("1")});
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(made[i].ok()) << made[i].status();
    EXPECT_EQ((*made[i])->rank(), (i + 2) % 3);
    EXPECT_EQ((*made[i])->size(), 3);
    EXPECT_EQ((*made[i])->peers()[0].host, "g");
    EXPECT_EQ((*made[i])->peers()[1].endpoint.port, 1000);
    EXPECT_EQ((*made[i])->job(), (*made[0])->job());
    EXPECT_TRUE((*made[i])->Health().ok());
  }
  for (auto& m : made) (*m)->Leave(0);
  EXPECT_TRUE(scheduler_->Wait().ok());
  EXPECT_THAT(log(), HasSubstr("The new node: 2(role: MS_WORKER) is registered successfully."));
  EXPECT_THAT(log(), HasSubstr("The cluster topology has been constructed successfully."));
}

TEST_F(Cluster, OtherIdsFillTheGapsInNaturalOrder) {
  Start(4);
  auto made = JoinAll({Worker("worker_10"), Worker("worker_2"), Worker("1"), Worker("z", "a")});
  const int want[] = {3, 2, 1, 0};
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(made[i].ok()) << made[i].status();
    EXPECT_EQ((*made[i])->rank(), want[i]) << i;
  }
}

TEST_F(Cluster, RefusalsGiveReasons) {
  options_.timeout = absl::Seconds(1);
  Start(2);
  JoinOptions first = Worker("0");
  first.hashes = {{"recipe", "aaa"}};
  std::string heard;
  first.log = [&](const std::string& line) { absl::StrAppend(&heard, line, "\n"); };
  const std::string last = "1 is refused: its recipe is bbb, that of 0 is aaa";
  std::thread waiting([&] {
    auto made = Membership::Join(first);
    EXPECT_EQ(made.status().code(), absl::StatusCode::kDeadlineExceeded);
    EXPECT_THAT(std::string(made.status().message()),
                HasSubstr("only 1 of 2 workers came within 1s; missing: MS_NODE_ID 1; " + last));
  });
  while (log().find("registered") == std::string::npos) absl::SleepFor(absl::Milliseconds(2));
  const auto refused = [&](const JoinOptions& join, const char* why) {
    const auto made = Membership::Join(join);
    EXPECT_EQ(made.status().code(), absl::StatusCode::kFailedPrecondition) << made.status();
    EXPECT_THAT(std::string(made.status().message()), HasSubstr(why));
  };
  refused(Worker("0"), "MS_NODE_ID=0 is taken");
  refused(Worker("00"), "MS_NODE_ID=00 is taken");
  refused(Worker("2"), "beyond 0 to 1");
  JoinOptions other = Worker("1");
  other.hashes = {{"recipe", "bbb"}};
  refused(other, "its recipe is bbb, that of 0 is aaa");
  waiting.join();
  EXPECT_THAT(heard, HasSubstr("The node: 0 is refused: MS_NODE_ID=0 is taken"));
  EXPECT_THAT(heard, HasSubstr("The node: " + last));
  EXPECT_EQ(scheduler_->Wait().code(), absl::StatusCode::kDeadlineExceeded);
}

TEST_F(Cluster, AWorkerThatWasToldOtherwiseThanTheSchedulerIsRefused) {
  options_.shared = {{"MS_ENABLE_RECOVERY", "0"}, {"MS_WORKER_NUM", "1"}};
  Start(1);
  const auto refused = [&](const std::map<std::string, std::string>& hashes, const std::string& id, const char* why) {
    JoinOptions join = Worker(id);
    join.hashes = hashes;
    const auto made = Membership::Join(join);
    EXPECT_EQ(made.status().code(), absl::StatusCode::kFailedPrecondition) << made.status();
    EXPECT_THAT(std::string(made.status().message()), HasSubstr(why));
    EXPECT_THAT(log(), HasSubstr(absl::StrCat("The node: ", id, " is refused: ", why)));
  };
  refused({{"MS_ENABLE_RECOVERY", "1"}, {"MS_WORKER_NUM", "1"}}, "0",
          "its MS_ENABLE_RECOVERY is 1, the scheduler's is 0; fix: set the same for all processes of the job");
  // Also where there is no place for it.
  refused({{"MS_ENABLE_RECOVERY", "0"}, {"MS_WORKER_NUM", "3"}}, "2", "its MS_WORKER_NUM is 3, the scheduler's is 1");
  refused({{"MS_ENABLE_RECOVERY", "0"}}, "0", "its MS_WORKER_NUM is not given, the scheduler's is 1");
  JoinOptions good = Worker("0");
  good.hashes = options_.shared;
  EXPECT_TRUE(Membership::Join(good).ok());
}

TEST_F(Cluster, MessagesNameWhatGivesAWorkerItsId) {
  options_.id_name = "SLURM_PROCID";
  options_.timeout = absl::Seconds(1);
  Start(2);
  const auto made = Membership::Join(Worker("0"));
  EXPECT_THAT(std::string(made.status().message()), HasSubstr("missing: SLURM_PROCID 1"));
}

TEST_F(Cluster, AWorkerThatDiffersEndsAJobThatNobodyAddsTo) {
  options_.differing_ends = true;
  Start(3);
  JoinOptions first = Worker("0"), same = Worker("0"), other = Worker("1");
  first.hashes = same.hashes = {{"recipe", "aaa"}};
  other.hashes = {{"recipe", "bbb"}};
  Status ended;
  std::thread waiting([&] { ended = Membership::Join(first).status(); });
  while (log().find("registered") == std::string::npos) absl::SleepFor(absl::Milliseconds(2));
  EXPECT_EQ(Membership::Join(same).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(scheduler_->Outcome().ok()) << "a taken place ends nothing";
  EXPECT_EQ(Membership::Join(other).status().code(), absl::StatusCode::kFailedPrecondition);
  waiting.join();
  EXPECT_THAT(std::string(ended.message()), HasSubstr("The node: 1 is refused: its recipe is bbb, that of 0 is aaa"));
  EXPECT_EQ(CauseOf(ended).exit_code, kExitEnvironment);
  EXPECT_EQ(scheduler_->Wait().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(Cluster, OneTooManyIsRefusedAlone) {
  Start(2);
  auto made = JoinAll({Worker("a"), Worker("b")});
  ASSERT_TRUE(made[0].ok() && made[1].ok());
  EXPECT_THAT(std::string(Membership::Join(Worker("c")).status().message()), HasSubstr("complete with 2 workers"));
  EXPECT_TRUE((*made[0])->Health().ok());
}

TEST_F(Cluster, ProgressNamesTheMissing) {
  options_.progress_every = absl::Milliseconds(50);
  Start(2);
  std::string heard;
  JoinOptions first = Worker("1");
  first.log = [&](const std::string& line) { heard = line; };
  std::thread waiting([&] { EXPECT_TRUE(Membership::Join(first).ok()); });
  absl::SleepFor(absl::Milliseconds(300));
  auto second = Membership::Join(Worker("0"));
  waiting.join();
  EXPECT_THAT(heard, HasSubstr("current alive node num: (1/2), missing: MS_NODE_ID 0"));
}

TEST_F(Cluster, ComparesValues) {
  Start(2);
  auto made = JoinAll({Worker("0"), Worker("1")});
  ASSERT_TRUE(made[0].ok() && made[1].ok());
  Status got[2];
  const auto compare = [&](const std::string& a, const std::string& b) {
    std::thread other([&] { got[1] = (*made[1])->Compare("graph", b, absl::Seconds(5)); });
    got[0] = (*made[0])->Compare("graph", a, absl::Seconds(5));
    other.join();
  };
  compare("x", "x");
  EXPECT_TRUE(got[0].ok() && got[1].ok()) << got[0] << got[1];
  compare("x", "y");
  for (const Status& status : got) {
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(std::string(status.message()), "graph differs: x on rank 0; y on rank 1");
  }
  EXPECT_EQ((*made[0])->Compare("alone", "x", absl::Milliseconds(50)).code(), absl::StatusCode::kDeadlineExceeded);
}

// What a rank tells another arrives in order, also to itself, at the listener of the channel alone. With nobody
// listening it is dropped.
TEST_F(Cluster, RanksTellOneAnother) {
  Start(3);
  auto made = JoinAll({Worker("0"), Worker("1"), Worker("2")});
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::string> heard;
  (*made[1])->Listen("a", [&](int from, const Membership::Texts& texts) {
    const std::lock_guard<std::mutex> lock(mutex);
    heard.push_back(absl::StrCat(from, " ", texts.at("op"), texts.count("to")));
    changed.notify_all();
  });
  (*made[1])->Listen("b", [](int, const Membership::Texts&) {});
  (*made[0])->Tell("a", 2, {{"op", "unheard"}});
  (*made[0])->Tell("b", 1, {{"op", "of another channel"}});
  (*made[0])->Tell("a", 7, {{"op", "there is no such rank"}});
  for (int i = 0; i < 3; ++i) (*made[0])->Tell("a", 1, {{"op", absl::StrCat(i, std::string(3000, 'x')).substr(0, 1)}});
  const auto wait = [&](size_t n) {
    std::unique_lock<std::mutex> lock(mutex);
    changed.wait_for(lock, std::chrono::seconds(10), [&] { return heard.size() >= n; });
  };
  wait(3);
  (*made[1])->Tell("a", 1, {{"op", "self"}});
  wait(4);
  (*made[1])->Listen("a", nullptr);
  EXPECT_THAT(heard, testing::ElementsAre("0 00", "0 10", "0 20", "1 self0"));
  for (auto& m : made) (*m)->Leave(0);
  EXPECT_TRUE(scheduler_->Wait().ok());
}

TEST_F(Cluster, DeathsAndAbortsReachAll) {
  Start(3);
  auto made = JoinAll({Worker("0"), Worker("1"), Worker("2")});
  for (auto& m : made) ASSERT_TRUE(m.ok());
  made[1]->reset();  // ends without leaving
  for (int tries = 0; (*made[0])->Health().ok() && tries < 1000; ++tries) absl::SleepFor(absl::Milliseconds(2));
  EXPECT_EQ((*made[0])->Health().code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string((*made[0])->Health().message()), HasSubstr("rank 1/3 (1 on h) has ended without leaving"));
  EXPECT_EQ(scheduler_->Wait().code(), absl::StatusCode::kUnavailable);

  Start(2);
  auto pair = JoinAll({Worker("0"), Worker("1")});
  (*pair[0])->Abort(absl::InternalError("train.lua:7: out of data"), kExitData);
  for (int tries = 0; (*pair[1])->Health().ok() && tries < 1000; ++tries) absl::SleepFor(absl::Milliseconds(2));
  EXPECT_THAT(std::string((*pair[1])->Health().message()), HasSubstr("rank 0/2 (0 on h): train.lua:7: out of data"));
  EXPECT_EQ(CauseOf((*pair[1])->Health()).rank, 0);
  EXPECT_EQ(CauseOf((*pair[1])->Health()).exit_code, kExitData);
  EXPECT_EQ(CauseOf(scheduler_->Wait()).exit_code, kExitData);
}

// What a launcher sees that the scheduler does not.
TEST_F(Cluster, EndsFromOutside) {
  Start(2);
  std::mutex mutex;
  std::string heard;
  JoinOptions first = Worker("0");
  first.on_over = [&](const Status& why) {
    std::lock_guard<std::mutex> lock(mutex);
    heard = std::string(why.message());
  };
  auto made = JoinAll({first, Worker("1")});
  ASSERT_TRUE(made[0].ok() && made[1].ok());
  EXPECT_TRUE(scheduler_->built());
  scheduler_->Fail(WithCause(absl::UnavailableError("rank 1 was stopped"), {1, kExitHang}));
  for (auto& m : made) {
    for (int tries = 0; (*m)->Health().ok() && tries < 1000; ++tries) absl::SleepFor(absl::Milliseconds(2));
  }
  EXPECT_EQ(CauseOf((*made[1])->Health()).exit_code, kExitHang);
  made[0]->reset();
  EXPECT_EQ(heard, "rank 1 was stopped");
  made[1]->reset();
  EXPECT_EQ(CauseOf(scheduler_->Wait()).rank, 1);
}

// A scheduler that was started again hears that the workers had done their work.
TEST_F(Cluster, WorkersOfAJobThatIsDoneHaveNotFailed) {
  Start(2);
  StatusOr<std::unique_ptr<Membership>> made;
  std::thread worker([&] { made = Membership::Join(Worker("0")); });
  const MonotonicTime deadline = Soon();
  while (!absl::StrContains(log(), "node: 0") && MonotonicNow() < deadline) absl::SleepFor(absl::Milliseconds(1));
  scheduler_->Fail(WithCause(absl::CancelledError("the job is done"), {-1, kExitOk}));
  worker.join();
  EXPECT_TRUE(absl::IsCancelled(made.status())) << made.status();
  EXPECT_EQ(CauseOf(made.status()).exit_code, kExitOk);
}

TEST_F(Cluster, SilenceIsNoticed) {
  options_.heartbeat_limit = absl::Milliseconds(200);  // below the workers' period: all seem stopped
  Start(1);
  auto made = Membership::Join(Worker("0"));
  ASSERT_TRUE(made.ok());
  EXPECT_EQ(scheduler_->Wait().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(log(), HasSubstr("rank 0/1 (0 on h) has given no sign of life for 200ms"));
}

TEST_F(Cluster, StrangersAndNoScheduler) {
  Start(1);
  auto intruder = ConnectTcp(scheduler_->endpoint(), MonotonicNow() + absl::Seconds(5));
  ASSERT_TRUE(intruder.ok());
  ASSERT_TRUE(SendAll(*intruder, "GET / HTTP/1.1\r\n\r\n", MonotonicNow() + absl::Seconds(1)).ok());
  char byte;
  EXPECT_FALSE(ReceiveAll(*intruder, &byte, 1, MonotonicNow() + absl::Seconds(5)).ok());  // closed
  EXPECT_TRUE(Membership::Join(Worker("0")).ok());
  JoinOptions nowhere = Worker("0");
  scheduler_.reset();
  nowhere.timeout = absl::Milliseconds(50);
  const auto made = Membership::Join(nowhere);
  EXPECT_EQ(made.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(made.status().message()), HasSubstr(ToString(nowhere.scheduler)));
}

TEST_F(Cluster, MissingAndSurplusHashesAreDifferences) {
  options_.timeout = absl::Seconds(20);
  Start(2);
  JoinOptions first = Worker("0"), bare = Worker("1"), fewer = Worker("1"), more = Worker("1"), same = Worker("1");
  first.hashes = same.hashes = {{"recipe", "aaa"}, {"version", "1"}};
  fewer.hashes = {{"recipe", "aaa"}};
  more.hashes = {{"recipe", "aaa"}, {"version", "1"}, {"verb", "train"}};
  std::unique_ptr<Membership> one;
  std::thread waiting([&] { one = std::move(*Membership::Join(first)); });
  while (log().find("registered") == std::string::npos) absl::SleepFor(absl::Milliseconds(2));
  const auto refused = [&](const JoinOptions& join, const char* why) {
    const auto made = Membership::Join(join);
    EXPECT_EQ(made.status().code(), absl::StatusCode::kFailedPrecondition) << made.status();
    EXPECT_THAT(std::string(made.status().message()), HasSubstr(why));
  };
  refused(bare, "its recipe is not given, that of 0 is aaa");
  refused(fewer, "its version is not given, that of 0 is 1");
  refused(more, "its verb is train, that of 0 is not given");
  EXPECT_TRUE(Membership::Join(same).ok());
  waiting.join();
}

// Who has joined is no member before all have come, and ends nothing.
TEST_F(Cluster, NobodyEndsAJobThatIsNotComplete) {
  Start(2);
  for (const ControlMessage& message : {ControlMessage{ControlMessage::Type::kLeave, {}},
                                        {ControlMessage::Type::kAbort, {{"code", "0"}, {"why", "x"}}},
                                        {ControlMessage::Type::kCompare, {{"name", "x"}}},
                                        {ControlMessage::Type::kRelay, {{"to", "0"}}},
                                        {ControlMessage::Type::kWelcome, {}}}) {
    auto joined = JoinByHand("0");
    ASSERT_TRUE(SendAll(joined.first, EncodeSealed(message, joined.second.send), Soon()).ok());
    EXPECT_TRUE(EndsSoon(joined.first));
  }
  EXPECT_TRUE(scheduler_->Outcome().ok());
  auto made = JoinAll({Worker("0"), Worker("1")});
  ASSERT_TRUE(made[0].ok() && made[1].ok()) << made[0].status() << made[1].status();
  for (auto& m : made) (*m)->Leave(0);
  EXPECT_TRUE(scheduler_->Wait().ok());
  EXPECT_THAT(log(), HasSubstr("refused a connection of 127.0.0.1:"));
  EXPECT_THAT(log(), HasSubstr("only a member may send"));
}

TEST_F(Cluster, AnAbortIsNoSuccess) {
  for (const char* code : {"0", "-1", "256", "99999999999", "", "x"}) {
    Start(1);
    auto joined = JoinByHand("0");
    ReceiveUntil(joined, ControlMessage::Type::kWelcome);
    const ControlMessage abort = {ControlMessage::Type::kAbort,
                                  {{"code", code}, {"why", "a\nmslua: error[0] b\033[2J"}}};
    ASSERT_TRUE(SendAll(joined.first, EncodeSealed(abort, joined.second.send), Soon()).ok());
    const Status outcome = scheduler_->Wait();
    EXPECT_EQ(CauseOf(outcome).exit_code, kExitRankCrashed) << code;
    EXPECT_THAT(std::string(outcome.message()), HasSubstr("a\n  mslua: error[0] b?[2J"));
  }
}

TEST_F(Cluster, ComparedValuesAreBounded) {
  Start(2);
  auto made = JoinAll({Worker("0"), Worker("1")});
  ASSERT_TRUE(made[0].ok() && made[1].ok());
  EXPECT_EQ((*made[0])->Compare("a", std::string(5000, 'x'), absl::Seconds(30)).code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(scheduler_->Wait().message()), HasSubstr("rank 0/2 (0 on h) gave a value to compare (a)"));
  Start(2);
  made = JoinAll({Worker("0"), Worker("1")});
  ASSERT_TRUE(made[0].ok() && made[1].ok());
  for (int i = 0; i < 20; ++i) (*made[1])->Compare(absl::StrCat("name", i), "x", absl::ZeroDuration()).IgnoreError();
  EXPECT_THAT(std::string(scheduler_->Wait().message()), HasSubstr("rank 1/2 (1 on h) gave a value to compare"));
}

TEST_F(Cluster, AnotherSecretIsRefused) {
  Start(1);
  JoinOptions wrong = Worker("0");
  wrong.secret = "another secret, as long";
  const auto made = Membership::Join(wrong);
  EXPECT_EQ(made.status().code(), absl::StatusCode::kPermissionDenied) << made.status();
  EXPECT_EQ(CauseOf(made.status()).exit_code, kExitSecurity);
  EXPECT_THAT(std::string(made.status().message()), HasSubstr("MSLUA_JOB_SECRET_FILE"));
  options_.secret.clear();
  EXPECT_EQ(Scheduler::Start(options_).status().code(), absl::StatusCode::kInvalidArgument) << "no secret";
  EXPECT_TRUE(Membership::Join(Worker("0")).ok());
}

// A scheduler that does not know the secret learns nothing of the worker.
TEST_F(Cluster, AForeignSchedulerIsRefused) {
  const Fd listener = *ListenTcp({"127.0.0.1", 0});
  std::thread foreign([&] {
    PollFor(listener, POLLIN, Soon()).IgnoreError();
    const Fd socket(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    Acceptor acceptor("another secret, as long", [](const ConnectionUse&) { return ""; });
    Seal none;
    const auto start = ReceiveControl(socket, none, Soon());
    ASSERT_TRUE(SendAll(socket, EncodeControl(acceptor.Answer(*start)), Soon()).ok());
    ASSERT_TRUE(ReceiveControl(socket, none, Soon()).ok());
    const ControlMessage lie = {ControlMessage::Type::kAccept, {{"proof", std::string(32, 'x')}}};
    ASSERT_TRUE(SendAll(socket, EncodeControl(lie), Soon()).ok());
    EXPECT_TRUE(EndsSoon(socket)) << "no join comes";
  });
  JoinOptions join;
  join.scheduler = *LocalEndpoint(listener);
  join.secret = kSecret;
  join.node_id = "0";
  const auto made = Membership::Join(join);
  EXPECT_EQ(made.status().code(), absl::StatusCode::kPermissionDenied) << made.status();
  EXPECT_THAT(std::string(made.status().message()), HasSubstr("does not know the job secret"));
  foreign.join();
}

// 100 workers and 500 connections that say nothing, all at once.
TEST_F(Cluster, ManyAtOnce) {
  // A busy machine runs some of them late.
  options_.heartbeat_limit = options_.own_heartbeat_limit = absl::Minutes(10);
  for (const bool local : {false, true}) {
    const std::string root = local ? LocalRoot() : "";
    if (local) options_.meeting = "meet-test";
    Start(100);
    std::vector<Fd> idle;
    const auto crowd = [&] {
      for (int i = 0; i < 250; ++i) {
        auto socket = local ? ConnectMeeting(scheduler_->endpoint().host) : ConnectTcp(scheduler_->endpoint(), Soon());
        if (socket.ok()) idle.push_back(std::move(*socket));
      }
    };
    crowd();
    std::vector<JoinOptions> joins;
    for (int i = 0; i < 100; ++i) {
      joins.push_back(Worker(absl::StrCat(i)));
      joins.back().timeout = absl::Seconds(100);
    }
    std::thread more(crowd);
    auto made = JoinAll(joins);
    more.join();
    for (size_t i = 0; i < made.size(); ++i) {
      ASSERT_TRUE(made[i].ok()) << made[i].status();
      EXPECT_EQ((*made[i])->rank(), static_cast<int>(i));
    }
    for (auto& m : made) (*m)->Leave(0);
    EXPECT_TRUE(scheduler_->Wait().ok());
    scheduler_.reset();
    if (local) std::filesystem::remove_all(root);
  }
}

// A connection that is closed without a reason is tried again.
TEST_F(Cluster, WorkersTryAgain) {
  Fd listener = *ListenTcp({"127.0.0.1", 0});
  options_.endpoint = *LocalEndpoint(listener);
  JoinOptions join;
  join.scheduler = options_.endpoint;
  join.secret = kSecret;
  join.node_id = "0";
  std::unique_ptr<Membership> made;
  std::thread joining([&] { made = std::move(*Membership::Join(join)); });
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(PollFor(listener, POLLIN, Soon()).ok());
    Fd(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC)).Close();
  }
  listener.Close();
  options_.workers = 1;
  options_.secret = kSecret;
  StatusOr<std::unique_ptr<Scheduler>> scheduler = absl::UnknownError("");
  while (!scheduler.ok()) scheduler = Scheduler::Start(options_);
  joining.join();
  EXPECT_EQ(made->rank(), 0);
}

TEST(Control, RoundTripAndDamage) {
  const ControlMessage sample = {ControlMessage::Type::kJoin,
                                 {{"id", "w"}, {"", "empty name"}, {"x", std::string(99, 0)}}};
  const std::string bytes = EncodeControl(sample);
  const auto got = DecodeControl(bytes);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->fields, sample.fields);
  EXPECT_THAT(DecodeControl(EncodeControl({}))->fields, IsEmpty());
  for (size_t i = 0; i < bytes.size() * 8; ++i) {
    std::string bad = bytes;
    bad[i / 8] ^= 1 << (i % 8);
    EXPECT_FALSE(DecodeControl(bad).ok()) << i;
  }
  for (size_t size = 0; size < bytes.size(); ++size) EXPECT_FALSE(DecodeControl(bytes.substr(0, size)).ok());
  EXPECT_FALSE(DecodeControl(EncodeControl({ControlMessage::Type::kJoin, {{"x", std::string(5000, 'y')}}})).ok());
  for (uint64_t round = 0; round < 20000; ++round) {  // any bytes are an error, never a crash
    std::string noise = bytes.substr(0, 16 + Philox(3, round, 0)[0] % 60);
    for (size_t i = 4; i < noise.size(); ++i) noise[i] = static_cast<char>(Philox(3, round, i)[1]);
    EXPECT_FALSE(DecodeControl(noise).ok());
  }
}

}  // namespace
}  // namespace mslua
