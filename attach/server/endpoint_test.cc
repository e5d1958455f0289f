// The endpoint's parts that take bytes from outside: commands, the handshake, floods of frames.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <limits>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "attach/server/agent.h"
#include "attach/server/boundary.h"
#include "attach/server/breaks.h"
#include "attach/server/combine.h"
#include "attach/server/command.h"
#include "attach/server/curve.h"
#include "attach/server/hub.h"
#include "attach/server/server.h"
#include "attach/server/snapshot.h"
#include "attach/server/statistics.h"
#include "core/base/clock.h"
#include "core/data/dataset.h"
#include "core/data/loader.h"
#include "core/data/source.h"
#include "core/data/testing/memory_sources.h"
#include "core/graph/builder.h"
#include "core/runtime/executable.h"
#include "core/train/trainer.h"
#include "rendezvous/control.h"

namespace mslua::endpoint {
namespace {

using testing::HasSubstr;

std::string Refusal(absl::string_view line) { return std::string(ParseCommand(line).status().message()); }

TEST(Command, WordsQuotesAndLimits) {
  const auto set = ParseCommand(".set lr=0.1 at 460");
  ASSERT_TRUE(set.ok());
  EXPECT_EQ(set->at, 460);
  EXPECT_EQ(set->args, std::vector<std::string>{"lr=0.1"});
  EXPECT_EQ(ParseCommand(".stat \"a name\"")->args[0], "a name");
  EXPECT_THAT(Refusal(".puase"), HasSubstr("did you mean 'pause'"));
  EXPECT_THAT(Refusal(".stat"), HasSubstr("usage: .stat NAME"));
  EXPECT_THAT(Refusal(".stat \"a"), HasSubstr("quote"));
  EXPECT_THAT(Refusal(".set lr=1 at x"), HasSubstr("at: expected an integer"));
  EXPECT_THAT(Refusal(".pause\x1b[2J"), HasSubstr("control characters"));
  EXPECT_FALSE(ParseCommand("." + std::string(5000, 'a')).ok());
  EXPECT_FALSE(ParseCommand("").ok());
}

// Whatever comes is a command or an error.
TEST(Command, MutatedLinesAreParsedOrRefused) {
  std::mt19937 random(7);
  std::vector<std::string> seeds = {".set lr=0.1 at 460", ".watch \"a b\" every 5 limit 2", "@all 1 + 1",
                                    ".break loss>3"};
  for (int i = 0; i < 200000; ++i) {
    std::string line = seeds[random() % seeds.size()];
    for (int n = static_cast<int>(random() % 6); n > 0 && !line.empty(); --n) {
      const size_t at = random() % line.size();
      if (random() % 3 == 0)
        line.erase(at, 1);
      else if (random() % 2 == 0)
        line.insert(at, 1, static_cast<char>(random()));
      else
        line[at] = static_cast<char>(random());
    }
    const auto command = ParseCommand(line);
    if (command.ok()) {
      EXPECT_NE(command->def, nullptr);
    } else {
      EXPECT_FALSE(command.status().message().empty());
    }
  }
}

// Frames: a mutation of a good one decodes to itself or is refused.
TEST(Frame, MutatedFramesAreDecodedOrRefused) {
  std::mt19937 random(11);
  const std::string good = EncodeControl({ControlMessage::Type::kCommand, {{"id", "1"}, {"line", ".pause"}}});
  int decoded = 0;
  for (int i = 0; i < 1000000; ++i) {
    std::string bytes = good;
    for (int n = static_cast<int>(random() % 4); n > 0; --n)
      bytes[random() % bytes.size()] = static_cast<char>(random());
    if (random() % 4 == 0) bytes.resize(random() % (bytes.size() + 8));
    decoded += DecodeControl(bytes).ok();
  }
  EXPECT_GT(decoded, 1000);
  EXPECT_LT(decoded, 999000);
}

class Echo : public Server::Handler {
 public:
  void OnCommand(const Server::Line& line) override { server->Reply(line.client, line.id, "heard " + line.text); }
  void OnLeave(uint64_t, bool) override { ++left; }
  Server* server = nullptr;
  std::atomic<int> left{0};
};

class ServerTest : public testing::Test {
 protected:
  void SetUp() override {
    char folder[] = "/tmp/mseXXXXXX";
    ASSERT_NE(mkdtemp(folder), nullptr);
    folder_ = folder;
    options_.path = folder_ + "/s";
    options_.token = "secret";
    options_.max_clients = 4;
    auto server = Server::Create(options_, &echo_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    echo_.server = server_.get();
    server_->Serve();
  }
  void TearDown() override {
    server_.reset();
    rmdir(folder_.c_str());
  }

  Fd Connect() { return *ConnectUnix(options_.path, MonotonicNow() + absl::Seconds(5)); }
  static ControlMessage Next(const Fd& fd) {
    std::string bytes(1 << 17, 0);
    EXPECT_TRUE(PollFor(fd, POLLIN, MonotonicNow() + absl::Seconds(5)).ok());
    const ssize_t n = recv(fd.get(), &bytes[0], bytes.size(), 0);
    if (n <= 0) return {ControlMessage::Type::kAbort, {}};
    return *DecodeControl(absl::string_view(bytes.data(), static_cast<size_t>(n)));
  }
  static void Send(const Fd& fd, const ControlMessage& message) {
    const std::string bytes = EncodeControl(message);
    send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  // Answers the challenge; gives the verdict's type.
  static ControlMessage::Type Prove(const Fd& fd, const std::string& token) {
    const ControlMessage challenge = Next(fd);
    if (challenge.type != ControlMessage::Type::kChallenge) return challenge.type;
    Send(fd, {ControlMessage::Type::kProof, {{"proof", ProofOf(token, challenge.fields.at("nonce"))}}});
    return Next(fd).type;
  }

  std::string folder_;
  ServerOptions options_;
  Echo echo_;
  std::unique_ptr<Server> server_;
};

TEST_F(ServerTest, AnswersWhoeverKnowsTheToken) {
  const Fd fd = Connect();
  ASSERT_EQ(Prove(fd, "secret"), ControlMessage::Type::kAccept);
  Send(fd, {ControlMessage::Type::kCommand, {{"id", "7"}, {"line", ".status"}}});
  const ControlMessage reply = Next(fd);
  EXPECT_EQ(reply.fields.at("id"), "7");
  EXPECT_EQ(reply.fields.at("text"), "heard .status");
  EXPECT_EQ(reply.fields.at("end"), "ok");
}

TEST_F(ServerTest, LongAnswersComeInParts) {
  const Fd fd = Connect();
  ASSERT_EQ(Prove(fd, "secret"), ControlMessage::Type::kAccept);
  server_->Reply(1, "1", std::string(200000, 'x'));
  size_t got = 0;
  while (true) {
    const ControlMessage part = Next(fd);
    got += part.fields.at("text").size();
    if (part.fields.count("end") > 0) break;
  }
  EXPECT_EQ(got, 200000);
}

TEST_F(ServerTest, RefusesAWrongTokenAndWhoeverIsOneTooMany) {
  EXPECT_EQ(Prove(Connect(), "guess"), ControlMessage::Type::kRefuse);
  std::vector<Fd> crowd;
  for (int i = 0; i < 4; ++i) {
    crowd.push_back(Connect());
    EXPECT_EQ(Prove(crowd.back(), "secret"), ControlMessage::Type::kAccept);
  }
  EXPECT_EQ(Prove(Connect(), "secret"), ControlMessage::Type::kRefuse);
  crowd.clear();
  while (server_->clients() > 0) absl::SleepFor(absl::Milliseconds(5));
  EXPECT_EQ(echo_.left, 4);
  EXPECT_EQ(Prove(Connect(), "secret"), ControlMessage::Type::kAccept);
}

TEST_F(ServerTest, RestsWhileThereAreNoDescriptors) {
  sockaddr_un at = {};
  at.sun_family = AF_UNIX;
  absl::SNPrintF(at.sun_path, sizeof at.sun_path, "%s", options_.path);
  const Fd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  constexpr rlim_t kMost = 64;  // all below are taken
  std::vector<Fd> taken;
  do taken.emplace_back(dup(0));
  while (taken.back().get() < static_cast<int>(kMost));
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none = {kMost, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const auto used = [] {
    timespec t = {};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return absl::DurationFromTimespec(t);
  };
  const absl::Duration begin = used();
  EXPECT_EQ(connect(fd.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at), 0);
  absl::SleepFor(absl::Milliseconds(500));
  const absl::Duration spent = used() - begin;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_LT(spent, absl::Milliseconds(250));  // of processor time: other processes take none of it
  EXPECT_EQ(Prove(fd, "secret"), ControlMessage::Type::kAccept);
}

TEST_F(ServerTest, SurvivesRandomFrames) {
  std::mt19937 random(3);
  for (int i = 0; i < 300; ++i) {
    const Fd fd = Connect();
    const bool proven = i % 2 == 0 && Prove(fd, "secret") == ControlMessage::Type::kAccept;
    for (int n = 0; n < 20; ++n) {
      std::string bytes = EncodeControl(
          {proven ? ControlMessage::Type::kCommand : ControlMessage::Type::kProof, {{"id", "1"}, {"line", "x"}}});
      bytes[random() % bytes.size()] = static_cast<char>(random());
      bytes.resize(1 + random() % (2 * bytes.size()));
      send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    }
  }
  while (server_->clients() > 0) absl::SleepFor(absl::Milliseconds(5));
  EXPECT_EQ(Prove(Connect(), "secret"), ControlMessage::Type::kAccept);
}

Answers AnswersOf(const std::vector<std::string>& jsons) {
  Answers answers;
  for (size_t r = 0; r < jsons.size(); ++r)
    answers.emplace(static_cast<int>(r), jsons[r].empty()
                                             ? StatusOr<Answer>(absl::DeadlineExceededError("does not answer"))
                                             : StatusOr<Answer>(Answer{"text", jsons[r]}));
  return answers;
}

TEST(Hub, RefusesCommandsOfARankWhoseLuaNobodyStarted) {
  TrainingView view;
  view.ranks = 3;
  Boundary boundary(view, {});
  std::vector<std::pair<int, RankMessage>> told;
  Hub hub(view, boundary,
          {[&told](int rank, RankMessage m) { told.emplace_back(rank, std::move(m)); },
           [](uint64_t, const std::string&, const StatusOr<std::string>&) { FAIL() << "nobody asked"; },
           [](uint64_t, const std::string&) {}, [] { return 0; }});
  hub.OnMessage(2, {{"op", "lua"}, {"line", ".pause"}});
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].first, 2);
  EXPECT_THAT(told[0].second["error"], HasSubstr("no Lua"));
}

TEST(Boundary, RefusesABreakOfAnotherRankThatItDoesNotHave) {
  const TrainingView view;
  Boundary boundary(view, {});
  for (const int32_t hit : {1, 2, 1 << 19, 0, -1})
    EXPECT_EQ(boundary.PauseNext(TrainState{}, hit).code(), absl::StatusCode::kInternal) << hit;
}

// Its steps are not made here.
class NoStep : public Executable {
 public:
  NoStep() {
    GraphBuilder g;
    g.Input("x", kData, {DType::kF32, {1}});
    g.Output("loss", g.Input("w", kParameter, {DType::kF32, {}}));
    graph_ = *g.Finish();
  }
  Status BindInput(absl::string_view, const void*) override { return absl::OkStatus(); }
  void BindInputAt(int, const void*) override {}
  bool BindOutput(int, void*) override { return false; }
  Status SetScalar(absl::string_view, double) override { return absl::OkStatus(); }
  void SetScalarAt(int, double) override {}
  Status Run() override { return absl::InternalError("no step"); }
  TensorView Output(int) const override { return {}; }
  const Graph& graph() const override { return graph_; }
  const std::vector<std::string>& inputs() const override { return inputs_; }
  const PlanReport& report() const override { return report_; }
  void SetTimeline(std::vector<int64_t>*) override {}
  const std::vector<std::pair<int32_t, const char*>>& launches() const override { return launches_; }
  const std::vector<ArenaEntry>& arena() const override { return arena_; }

 private:
  Graph graph_;
  std::vector<std::string> inputs_ = {"x", "w"};
  PlanReport report_;
  std::vector<std::pair<int32_t, const char*>> launches_;
  std::vector<ArenaEntry> arena_;
};

// A trainer that makes no step by itself, with all that it needs.
struct IdleTrainer {
  std::shared_ptr<std::vector<float>> values = std::make_shared<std::vector<float>>(4);
  data::Dataset set{data::NumpySlices({{"x", {DType::kF32, {4}}, {values, values->data()}}})};
  data::Loader loader{*data::Pipeline::Open(set.Batch({1}), data::FeedOptions()), data::LoaderOptions()};
  NoStep step;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> out{std::tmpfile(), std::fclose};
  Console console{Console::Options(), out.get()};
  std::unique_ptr<Trainer> trainer = *Trainer::Create(&step, &loader, {}, TrainerOptions(), &console);
};

// Rank 1 of two, paused after step 5, is asked to stop, and rank 0 is not yet. What all ranks have agreed on before
// they hear of that is carried out on all of them, what they agree on later on none: the other rank would wait for
// this one in a command that all carry out together.
TEST(Boundary, APauseOfSeveralRanksEndsForAllAtOnce) {
  IdleTrainer idle;
  TrainingView view;
  view.rank = 1;
  view.ranks = 2;
  view.trainer = idle.trainer.get();
  view.print = [](const std::string&) {};
  std::mutex mutex;
  std::vector<uint64_t> answered;
  std::vector<int64_t> leaves;
  const auto locked = [&](const auto& what) {
    const std::lock_guard<std::mutex> lock(mutex);
    return what();
  };
  Boundary boundary(
      view,
      {[&](const Request& r, const StatusOr<Answer>&) { locked([&] { return answered.push_back(r.seq), 0; }); },
       [](uint64_t, const std::string&) {}, [&](int64_t at) { locked([&] { return leaves.push_back(at), 0; }); }});
  const auto propose = [&](uint64_t seq, const CommandDef* def, int64_t at) {
    Request request;
    request.seq = seq;
    request.command.def = def;
    EXPECT_TRUE(boundary.Propose(std::move(request), at).accepted);
    boundary.Decide(seq, true);
  };
  propose(1, ParseCommand(".pause")->def, 5);
  std::atomic<bool> left{false};
  std::thread trains([&] {
    TrainState state;
    state.step = 5;
    EXPECT_TRUE(boundary.AtBoundary(state).ok());
    left = true;
  });
  const auto eventually = [&](const auto& what) {
    for (int i = 0; i < 2000 && !locked(what); ++i) absl::SleepFor(absl::Milliseconds(5));
    return locked(what);
  };
  EXPECT_TRUE(eventually([&] { return answered.size() == 1; }));
  idle.trainer->RequestStop();
  EXPECT_TRUE(eventually([&] { return leaves == std::vector<int64_t>{5}; }));
  absl::SleepFor(absl::Milliseconds(250));
  EXPECT_FALSE(left);
  propose(2, &ForgetCommand(), 100);
  boundary.Release(5);
  propose(3, &ForgetCommand(), 101);
  trains.join();
  EXPECT_EQ(answered, (std::vector<uint64_t>{1, 2}));
  EXPECT_EQ(leaves.size(), 1u);
  boundary.Close();
}

// The ranks agree after the last step of an epoch, and again at its end: a break that was set between waits for the
// next step.
TEST(Boundary, ABreakDoesNotJudgeAStepThatWasJudged) {
  IdleTrainer idle;
  TrainingView view;
  view.ranks = 2;
  view.trainer = idle.trainer.get();
  std::vector<std::string> told;
  Boundary boundary(view, {[](const Request&, const StatusOr<Answer>& a) { EXPECT_TRUE(a.ok()) << a.status(); },
                           [&](uint64_t, const std::string& line) { told.push_back(line); }, [](int64_t) {}});
  TrainState state;
  state.step = 5;
  state.loss = 1;
  EXPECT_EQ(boundary.BreakHit(state), 0);
  Request request;
  request.seq = 1;
  request.command = *ParseCommand(".break loss<2");
  ASSERT_TRUE(boundary.Propose(std::move(request), 5).accepted);
  boundary.Decide(1, true);
  ASSERT_TRUE(boundary.AtBoundary(state).ok());
  EXPECT_EQ(boundary.BreakHit(state), 0);
  EXPECT_TRUE(told.empty());
  state.step = 6;
  EXPECT_EQ(boundary.BreakHit(state), 1);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_THAT(told[0], HasSubstr("break loss<2: paused at step 6"));
  boundary.Close();
}

// One rank that trains, a step a millisecond, and the hub beside it, as an endpoint connects them.
class Attached : public testing::Test {
 protected:
  void SetUp() override {
    view_.trainer = idle_.trainer.get();
    view_.store = &store_;
    view_.print = [](const std::string&) {};
    agent_ = std::make_unique<Agent>(view_, [this](RankMessage m) {
      const std::lock_guard<std::mutex> lock(mutex_);
      to_hub_.push_back(std::move(m));
    });
    hub_ = std::make_unique<Hub>(view_, agent_->boundary(),
                                 Hub::Outlet{[this](int, const RankMessage& m) { agent_->OnMessage(0, m); },
                                             [this](uint64_t, const std::string& id, const StatusOr<std::string>& a) {
                                               answers_[id] = a.ok() ? *a : std::string(a.status().message());
                                             },
                                             [](uint64_t, const std::string&) {}, [] { return 1; }});
    trains_ = std::thread([this] {
      TrainState state;
      while (!ends_) {
        {
          const std::lock_guard<std::mutex> lock(between_);
          progress().step = progress().boundary = ++state.step;
        }
        EXPECT_TRUE(agent_->boundary().AtBoundary(state).ok());
        absl::SleepFor(absl::Milliseconds(1));
      }
    });
    Send(".rw");
  }
  void TearDown() override {
    ends_ = true;
    idle_.trainer->RequestStop();
    trains_.join();
    agent_->boundary().Close();
  }

  TrainProgress& progress() { return idle_.trainer->progress(); }
  int64_t step() { return progress().step; }
  bool paused() { return agent_->boundary().paused(); }
  void Send(const std::string& line) { hub_->OnLine({kClient, 77, line, line, false}); }
  void Deliver() {
    std::vector<RankMessage> messages;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      messages.swap(to_hub_);
    }
    for (const RankMessage& m : messages) hub_->OnMessage(0, m);
    hub_->OnWake();
  }
  // While messages are delivered, or are not.
  template <class What>
  bool Comes(const What& what, bool deliver = true) {
    const MonotonicTime limit = MonotonicNow() + absl::Seconds(20);
    while (!what() && MonotonicNow() < limit) {
      if (deliver) Deliver();
      absl::SleepFor(absl::Milliseconds(1));
    }
    return what();
  }
  bool Answered(const std::string& line) {
    return Comes([&] { return answers_.count(line) > 0; });
  }
  bool TrainsOn() {
    const int64_t from = step();
    return Comes([&] { return step() > from + 200; });
  }

  static constexpr uint64_t kClient = 5;
  IdleTrainer idle_;
  Store store_;
  TrainingView view_;
  std::unique_ptr<Agent> agent_;
  std::unique_ptr<Hub> hub_;
  std::map<std::string, std::string> answers_;  // by the line
  std::mutex between_;                          // held by the training thread while it counts a step

 private:
  std::mutex mutex_;
  std::vector<RankMessage> to_hub_;
  std::atomic<bool> ends_{false};
  std::thread trains_;
};

TEST_F(Attached, AJobThatMakesStepsForAClientThatHasGoneMakesNoPause) {
  for (const bool on_purpose : {false, true}) {
    Send(".rw");
    Send(".pause");
    ASSERT_TRUE(Answered(".pause"));
    Send(".step 100");
    ASSERT_TRUE(Comes([&] { return !paused(); }));
    hub_->OnLeave(kClient, on_purpose);
    EXPECT_TRUE(TrainsOn()) << on_purpose;
    answers_.clear();
  }
}

TEST_F(Attached, APauseThatComesAfterItsClientHasGoneEnds) {
  for (const bool on_purpose : {false, true}) {
    Send(".rw");
    Send(".pause");
    hub_->OnLeave(kClient, on_purpose);
    ASSERT_TRUE(Answered(".pause"));
    EXPECT_TRUE(paused());
    EXPECT_TRUE(TrainsOn()) << on_purpose;
    answers_.clear();
  }
}

TEST_F(Attached, ABreakOfAClientThatHasGivenTheLockBackPausesUntilTheClientDies) {
  const std::string line = absl::StrCat(".break step ", step() + 1000);
  Send(line);
  ASSERT_TRUE(Answered(line));
  Send(".ro");
  ASSERT_TRUE(Comes([&] { return paused(); }));
  hub_->OnLeave(kClient, false);
  EXPECT_TRUE(TrainsOn());
}

TEST_F(Attached, ABreakThatIsHitAfterItsClientHasGonePausesForTwoSeconds) {
  const int64_t at = step() + 1000;
  const std::string line = absl::StrCat(".break step ", at);
  Send(line);
  ASSERT_TRUE(Answered(line));
  ASSERT_TRUE(Comes([&] { return step() >= at - 20; }, /*deliver=*/false));
  {
    const std::lock_guard<std::mutex> lock(between_);
    progress().step = at;  // the client is forgotten later
    hub_->OnLeave(kClient, false);
  }
  ASSERT_TRUE(Comes([&] { return paused(); }, /*deliver=*/false));
  EXPECT_TRUE(TrainsOn());
}

TEST_F(Attached, APauseThatWasAnsweredStaysWhenItsClientGoesOnPurpose) {
  Send(".pause");
  ASSERT_TRUE(Answered(".pause"));
  hub_->OnLeave(kClient, true);
  for (const MonotonicTime limit = MonotonicNow() + kLease + absl::Seconds(1); MonotonicNow() < limit;) {
    Deliver();
    absl::SleepFor(absl::Milliseconds(1));
  }
  EXPECT_TRUE(paused());
}

TEST_F(Attached, ResumeEndsStepsThatAreNotDone) {
  Send(".pause");
  ASSERT_TRUE(Answered(".pause"));
  Send(".step 1000000");
  ASSERT_TRUE(Comes([&] { return !paused(); }));
  Send(".resume");
  ASSERT_TRUE(Answered(".resume"));
  EXPECT_THAT(answers_[".resume"], HasSubstr("resumed at step"));
  ASSERT_TRUE(Answered(".step 1000000"));
  EXPECT_THAT(answers_[".step 1000000"], HasSubstr("before the pause"));
  answers_.clear();
  Send(".resume");
  ASSERT_TRUE(Answered(".resume"));
  EXPECT_THAT(answers_[".resume"], HasSubstr("the job is not paused"));
}

TEST(Boundary, SaysWhenEventsCannotBeRecorded) {
  TrainingView view;
  view.folder = testing::TempDir();
  ASSERT_EQ(mkdir((view.folder + "/events.jsonl").c_str(), 0755), 0);
  std::vector<std::string> notices;
  RecordHealth health([&](const std::string& line) { notices.push_back(line); });
  view.health = &health;
  const Boundary boundary(view, {});
  ASSERT_EQ(notices.size(), 1u);
  EXPECT_THAT(notices[0], HasSubstr("events.jsonl"));
}

// What the answers of a command, each with the text "text", become.
std::string Combined(const char* command, const std::vector<std::string>& jsons) {
  return Combine(*ParseCommand(command), AnswersOf(jsons), {})->text;
}

TEST(Combine, NamesWhoIsWaitedFor) {
  const std::string computes = R"({"phase":"compute","seconds":3.5,"lua":"","collective":""})";
  const std::string calls = R"({"phase":"between steps","seconds":3.5,"lua":"","collective":"all_reduce #7"})";
  const std::string sleeps = R"({"phase":"data","seconds":4.1,"lua":"recipe.lua:14","collective":""})";
  EXPECT_EQ(Combined(".diag", {computes, sleeps, calls}),
            "text\ntext\ntext\nranks 0,2 wait for rank 1, in its data for 4.1 s, at recipe.lua:14, in all_reduce #7\n");
  EXPECT_EQ(Combined(".diag", {computes, ""}),
            "text\nrank 1: does not answer\nrank 0 waits for rank 1, which does not answer\n");
  EXPECT_EQ(Combined(".diag", {computes, calls}), "text\ntext\n");
  EXPECT_EQ(Combined(".diag", {sleeps}), "text");
}

TEST(Combine, EqualAnswersAreSaidOnce) {
  const Command pause = *ParseCommand(".pause");
  Answers answers;
  for (int r = 0; r < 4; ++r) answers.emplace(r, Answer{"paused at step 7", "{\"step\":7}"});
  EXPECT_THAT(Combine(pause, answers, absl::Milliseconds(20))->text,
              HasSubstr("paused at step 7 on 4/4 ranks (0.02 s)"));
  answers.at(2) = absl::FailedPreconditionError("no");
  EXPECT_THAT(std::string(Combine(pause, answers, absl::ZeroDuration()).status().message()), HasSubstr("no (ranks 2)"));
  const std::string one = R"({"type":"f32[2]","stat":{"crc":"00c0ffee"}})",
                    other = R"({"type":"f32[2]","stat":{"crc":"1"}})";
  EXPECT_EQ(Combined(".stat w", {one, one}), "text  identical on ranks 0-1 (crc 00c0ffee)");
  EXPECT_EQ(Combined(".stat w", {one, other, one}), "[0,2] text\n[1] text\n");
  EXPECT_EQ(Combined(".stat w", {"{}", "{}"}), "text");  // to be told later
}

TEST(Combine, LuaSaysEqualValuesOnce) {
  Answers answers;
  for (int r = 0; r < 3; ++r) answers.emplace(r, Answer{r == 1 ? "5" : "64", ""});
  EXPECT_EQ(CombineLua(answers)->text, "[0,2] 64\n[1] 5\n");
  answers.at(1) = absl::InvalidArgumentError("wrong");
  EXPECT_EQ(CombineLua(answers).status().message(), "[0,2] 64\n[1] wrong");
}

std::string PartJson(const std::string& begin) {
  return absl::StrCat(
      R"({"name":"fc.w","dtype":"f32","whole":[4,8],"part":[2,4],"bytes":32,"own":false,"layout":"[a, b]",)",
      R"("begin":)", begin, "}");
}

TEST(Combine, PartsAreDrawnAsATable) {
  EXPECT_EQ(Combined(".layout fc.w", {PartJson("[0,0]"), PartJson("[0,4]"), PartJson("[2,0]"), PartJson("[2,4]"),
                                      PartJson("[0,0]"), PartJson("[0,4]"), PartJson("[2,0]"), PartJson("[2,4]")}),
            "fc.w  f32[4,8]  layout [a, b]  4 parts of [2,4], 32 B each, 2 copies\n"
            "  axis 1 \\ 2      [1:4]           [5:8]           \n"
            "  [1:2]           r0 r4           r1 r5           \n"
            "  [3:4]           r2 r6           r3 r7           \n");
}

TEST(Combine, ALayoutIsOfTheNameThatFitsBestOnAnyRank) {
  const auto whole = [](const std::string& name) {
    return absl::StrCat(R"({"name":")", name, R"(","dtype":"f32","whole":[4],"part":[4],"bytes":16,"own":false,)",
                        R"("layout":"","begin":[0]})");
  };
  EXPECT_EQ(Combined(".layout 0.weight", {whole("10.weight"), whole("0.weight"), whole("0.weight")}),
            "0.weight  f32[4]  whole on ranks 1-2  16 B each\n  not on rank 0\n");
  const auto several = Combine(*ParseCommand(".layout weight"), AnswersOf({whole("0.weight"), whole("1.weight")}), {});
  EXPECT_THAT(std::string(several.status().message()), HasSubstr("'weight' fits 2: 0.weight, 1.weight"));
}

// 7 elements in slices of 3: the last rank has one, and padding that is not said.
TEST(Combine, TheLastSliceMayBeShorter) {
  const auto slice = [](int begin, int size) {
    return absl::StrCat(R"({"name":"m.w","dtype":"f32","whole":[7],"part":[)", size,
                        R"(],"bytes":12,"own":false,"layout":"","begin":[)", begin, "]}");
  };
  EXPECT_EQ(Combined(".layout m.w", {slice(0, 3), slice(3, 3), slice(6, 1)}),
            "m.w  f32[7]  3 parts of [3], 12 B each, 1 copy\n"
            "  axis 1 [1:3]             r0\n"
            "  axis 1 [4:6]             r1\n"
            "  axis 1 [7:7]             r2\n");
}

TEST(Combine, CallsNameWhoHasNotCome) {
  const std::string came = R"({"calls":[{"n":7,"of":3,"what":"all_reduce","state":"waiting","s":2.5}]})";
  EXPECT_EQ(Combined(".comm", {came, R"({"calls":[]})", came}),
            "#7 of 3 ranks  all_reduce  waiting on 0,2, not entered by 1  (2.500 s at most)\n");
}

// A rank of another build, or one whose memory is damaged, says something else: its answer is left out.
TEST(Combine, DamagedAnswersAreLeftOut) {
  const std::string part = PartJson("[0,0]"), call = R"({"calls":[{"n":7,"of":2,"what":"w","state":"done","s":1}]})",
                    diagnosis = R"({"phase":"compute","seconds":3.5,"lua":"","collective":"all_reduce #7"})",
                    statistics = R"({"type":"f32[2]","stat":{"crc":"00c0ffee"}})";
  EXPECT_THAT(Combined(".layout fc.w", {part, PartJson("[3,0]")}), HasSubstr("no answer from rank 1\n"));
  EXPECT_THAT(Combined(".layout fc.w", {part, PartJson("[0]")}), HasSubstr("no answer from rank 1\n"));
  std::vector<Command> commands;
  for (const char* const line : {".layout fc.w", ".comm", ".stat w", ".diag"}) commands.push_back(*ParseCommand(line));
  std::mt19937 random(5);
  for (int i = 0; i < 20000; ++i) {
    for (const std::string& whole : {part, call, diagnosis, statistics}) {
      std::string damaged = whole;
      for (int n = 0; n < 1 + i % 3; ++n) {
        const size_t at = random() % damaged.size();
        static constexpr char kBytes[] = "0\"[]{}:,-9etn";
        if (random() % 2 == 0) damaged[at] = kBytes[random() % (sizeof(kBytes) - 1)];
        if (random() % 4 == 0) damaged.erase(at, random() % 8);
        if (damaged.empty()) break;
      }
      const auto answers = AnswersOf({whole, damaged});
      for (const Command& command : commands) Combine(command, answers, {}).IgnoreError();
    }
  }
}

TEST(Statistics, OfManyFloatsIsThatOfEach) {
  std::vector<float> x(1003);
  for (size_t i = 0; i < x.size(); ++i) x[i] = i % 7 == 0 ? 0 : static_cast<float>(i % 13) - 6.5f;
  x[40] = std::numeric_limits<float>::quiet_NaN();
  x[990] = -std::numeric_limits<float>::infinity();
  const Statistics s = StatisticsOf({{DType::kF32, {1003}}, x.data()});
  double sum = 0, squares = 0;
  int64_t zeros = 0;
  for (float v : x) {
    if (!std::isfinite(v)) continue;
    sum += v, squares += static_cast<double>(v) * v, zeros += v == 0;
  }
  EXPECT_EQ(s.nans, 1);
  EXPECT_EQ(s.infinities, 1);
  EXPECT_EQ(s.zeros, zeros);
  EXPECT_NEAR(s.mean, sum / 1001, 1e-12);
  EXPECT_NEAR(s.norm, std::sqrt(squares), 1e-9);
  EXPECT_EQ(s.least, -6.5);
  EXPECT_EQ(s.most, 5.5);
}

TEST(Statistics, OfFiniteElements) {
  const float values[] = {0, 1, 2, std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), -3};
  const Statistics s = StatisticsOf({{DType::kF32, {6}}, const_cast<float*>(values)});
  EXPECT_EQ(s.zeros, 1);
  EXPECT_EQ(s.nans, 1);
  EXPECT_EQ(s.infinities, 1);
  EXPECT_DOUBLE_EQ(s.mean, 0);
  EXPECT_DOUBLE_EQ(s.least, -3);
  EXPECT_DOUBLE_EQ(s.most, 2);
}

TEST(Statistics, WithoutAFiniteElementAreNotNumbers) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), values[] = {nan, nan};
  const Statistics s = StatisticsOf({{DType::kF32, {2}}, const_cast<float*>(values)});
  EXPECT_EQ(ToString(s), "mean nan  std nan  min nan  max nan  |x| nan  zero 0.0%  nan 2  inf 0");
  EXPECT_THAT(ToJson(s), HasSubstr(R"("mean":null,"std":null,"min":null,"max":null,"norm":null,"zeros":0,"nan":2)"));
  const float some[] = {1, nan};
  EXPECT_THAT(ToString(StatisticsOf({{DType::kF32, {2}}, const_cast<float*>(some)})),
              HasSubstr("mean 1  std 0  min 1  max 1  |x| 1  zero 0.0%  nan 1  inf 0  (mean to |x|: of the 1 finite)"));
}

TEST(DrawCurve, HasALabelAndAPointAColumn) {
  const std::string text = DrawCurve({3, 2, 1}, 5, 20, 5, "loss");
  EXPECT_THAT(text, HasSubstr("step 5..7"));
  EXPECT_THAT(text, HasSubstr("least 1@7"));
  EXPECT_EQ(std::count(text.begin(), text.end(), '*'), 3);
}

TEST(DrawCurve, LeavesOutWhatIsNotFinite) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
  EXPECT_THAT(DrawCurve({nan, -infinity, 3, 2}, 5, 20, 5, "loss"), HasSubstr("least 2@8"));
}

TEST(Breaks, TakeFiniteNumbers) {
  Breaks breaks;
  EXPECT_TRUE(breaks.Add(1, "loss>1e3", 0).ok());
  for (const char* text : {"loss>nan", "loss<inf", "loss>-inf", "loss>x"})
    EXPECT_THAT(breaks.Add(1, text, 0).message(), HasSubstr("expected a finite number after loss")) << text;
}

}  // namespace
}  // namespace mslua::endpoint
