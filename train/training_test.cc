// Whole trainings in C++, without a Lua state: run folder, checkpoints, resuming, an evaluation, ranks as threads.
#include "train/training.h"

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "collectives/host/inproc.h"
#include "core/data/testing/memory_sources.h"
#include "core/optim/registry.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace mslua {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kRows = 16, kBatch = 4;

// Samples x f32[2] and y f32[2] = 3 x, on `feeds` ranks.
TrainingData Data(int64_t feed, int64_t feeds) {
  auto x = std::make_shared<std::vector<float>>(), y = std::make_shared<std::vector<float>>();
  for (int64_t i = 0; i < 2 * kRows; ++i) {
    x->push_back(std::sin(static_cast<float>(i)));
    y->push_back(3 * x->back());
  }
  data::Dataset set(data::NumpySlices(
      {{"x", {DType::kF32, {kRows, 2}}, {x, x->data()}}, {"y", {DType::kF32, {kRows, 2}}, {y, y->data()}}}));
  data::FeedOptions options;
  options.feed = feed;
  options.feeds = feeds;
  auto pipeline = data::Pipeline::Open(set.Batch({kBatch}), options);
  EXPECT_EQ(pipeline.status(), absl::OkStatus());
  TrainingData data;
  data.pipeline = *pipeline;
  data.source = "NumpySlicesDataset";
  data.divided = feeds > 1;
  data.feeds = feeds;
  return data;
}

// One rank of a training of y = x w, w a matrix, by SGD at rate 0.2.
class OneRank {
 public:
  OneRank(int rank, int ranks, std::shared_ptr<Groups> groups, const std::string& folder) {
    state_.rank = rank;
    state_.ranks = ranks;
    state_.groups = std::move(groups);
    state_.seed = 7;
    w_->name = "w";
    w_->kind = kParameter;
    w_->type = {DType::kF32, {2, 2}};
    w_->init.kind = "normal";
    spec_.name = "line";
    spec_.parameters = {w_};
    spec_.parameter_names = {"w"};
    spec_.options.epochs = 3;
    spec_.options.seed = 7;
    spec_.rates[0].schedule.constant = 0.2;
    spec_.history = std::make_shared<OptimizerHistory>();
    spec_.together = ranks > 1 ? state_.groups.get() : nullptr;
    spec_.has_checkpoint = true;
    spec_.checkpoint.keeper.prefix = "line";
    spec_.open = [rank, ranks]() -> StatusOr<TrainingData> { return Data(rank, ranks); };
    rank_.state = &state_;
    rank_.prints = false;
    rank_.flags.out = folder;
    rank_.flags.progress = "off";
    rank_.flags.may_attach = false;
    rank_.written = &written_;
    rank_.records = &records_;
    rank_.device_text = [] { return std::string(); };
    rank_.machine = [] { return ProcessorText(); };
    rank_.compile = [this](const StepGraph& graph, bool share, Decisions* decisions) {
      return Compile(graph, share, decisions);
    };
  }

  TrainingSpec& spec() { return spec_; }
  TrainingFlags& flags() { return rank_.flags; }

  // The step on `ranks` ranks, and an evaluation's sum of squares.
  Status Build() {
    TrainSpec step;
    step.inputs = {{"x", {DType::kF32, {kBatch, 2}}}, {"y", {DType::kF32, {kBatch, 2}}}};
    step.parameters = {w_};
    step.rule.def = FindOptimizer("sgd");
    for (const OptimizerField& field : step.rule.def->fields) {
      for (const std::string& setting : field.settings)
        step.rule.settings.Set(setting, step.rule.def->Default(setting));
    }
    step.history = spec_.history;
    for (int64_t r = 0; state_.ranks > 1 && r < state_.ranks; ++r) step.aggregation.ranks.push_back(r);
    step.aggregation.mean = true;
    Trace trace(state_, 1, "line", /*training=*/true);
    ASSIGN_OR_RETURN(TrainGraph made, BuildTrainGraph(state_, trace, step, Loss(trace, /*mean=*/true)));
    spec_.graph = std::make_shared<StepGraph>(std::move(made.step));
    EvalGraphSpec eval;
    eval.inputs = step.inputs;
    eval.outputs = {"loss"};
    Trace eval_trace(state_, 2, "line.eval", /*training=*/false);
    ASSIGN_OR_RETURN(StepGraph evaluation, BuildEvalGraph(state_, eval_trace, eval, Loss(eval_trace, /*mean=*/false)));
    spec_.eval.graph = std::make_shared<StepGraph>(std::move(evaluation));
    spec_.eval.open = spec_.open;
    spec_.eval.metrics = {{"loss", "mean"}};
    spec_.has_eval = true;
    return absl::OkStatus();
  }

  StatusOr<double> Train() {
    if (spec_.graph == nullptr) RETURN_IF_ERROR(Build());
    return Training(&spec_, rank_).Run();
  }

  std::vector<float> Weights() {
    const TensorView w = *ValueOf(state_, *w_);
    const float* const values = static_cast<const float*>(w.data);
    return std::vector<float>(values, values + w.type.elements());
  }

 private:
  ForwardFn Loss(Trace& trace, bool mean) {
    return [this, &trace, mean](const std::vector<Value>& columns) -> StatusOr<std::vector<Value>> {
      GraphBuilder& g = trace.g();
      ASSIGN_OR_RETURN(const Value w, trace.ParameterValue(w_));
      const Value difference = Sub(g, g.Op("matmul", {columns[0], w}), columns[1]);
      const Value sum = ReduceSum(g, Mul(g, difference, difference), {0, 1}, false);
      return std::vector<Value>{mean ? Mul(g, sum, 1.0 / kBatch) : sum};
    };
  }

  StatusOr<std::unique_ptr<Executable>> Compile(const StepGraph& graph, bool share, Decisions* decisions) {
    for (const auto& p : graph.parameters) RETURN_IF_ERROR(ValueOf(state_, *p).status());
    CompileOptions options;
    options.rank = state_.rank;
    options.groups = state_.groups.get();
    options.share = share;
    options.decisions = decisions;
    return Executable::Compile(graph.graph, &state_.store, options);
  }

  RankState state_;
  std::shared_ptr<ParameterData> w_ = std::make_shared<ParameterData>();
  TrainingSpec spec_;
  TrainingRank rank_;
  std::set<std::string> written_;
  Status records_;
};

class TrainingTest : public ::testing::Test {
 protected:
  TrainingTest() {
    const char* const base = std::getenv("TEST_TMPDIR");
    std::string path = absl::StrCat(base == nullptr ? "/tmp" : base, "/training-XXXXXX");
    root_ = mkdtemp(path.data());
  }
  ~TrainingTest() override { std::filesystem::remove_all(root_); }

  std::string At(const std::string& name) const { return absl::StrCat(root_, "/", name); }
  static std::string Text(const std::string& path) {
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }

  std::string root_;
};

TEST_F(TrainingTest, TrainsEvaluatesAndRecords) {
  OneRank one(0, 1, nullptr, At("run"));
  const auto loss = one.Train();
  ASSERT_EQ(loss.status(), absl::OkStatus());
  const double* const evaluated = one.spec().progress.Find("eval_loss");
  ASSERT_NE(evaluated, nullptr);
  EXPECT_LT(*evaluated, *loss);
  EXPECT_NEAR(one.Weights()[0], 3, 0.5);
  EXPECT_EQ(Text(At("run/outcome.json")), "{\"state\":\"done\",\"step\":12}\n");
  EXPECT_THAT(Text(At("run/metrics.jsonl")), HasSubstr("\"eval_loss\""));
  EXPECT_TRUE(std::filesystem::exists(At("run/ckpt/line-3_12.ckpt")));
}

TEST_F(TrainingTest, ResumesBitForBit) {
  OneRank whole(0, 1, nullptr, At("whole"));
  ASSERT_EQ(whole.Train().status(), absl::OkStatus());
  {
    OneRank first(0, 1, nullptr, At("parts"));
    first.spec().options.max_steps = 5;
    ASSERT_EQ(first.Train().status(), absl::OkStatus());
  }
  OneRank second(0, 1, nullptr, At("parts"));
  second.flags().resume = At("parts/ckpt");
  ASSERT_EQ(second.Train().status(), absl::OkStatus());
  EXPECT_EQ(second.Weights(), whole.Weights());
}

// A checkpoint that does not fit, or that is not there, changes nothing of what is recorded of the run.
TEST_F(TrainingTest, AResumeThatFailsLeavesTheRecords) {
  const std::string folder = At("run");
  OneRank whole(0, 1, nullptr, folder);
  whole.spec().checkpoint.keeper.save_checkpoint_steps = 4;
  ASSERT_EQ(whole.Train().status(), absl::OkStatus());
  const auto records = [&] {
    return absl::StrCat(Text(folder + "/metrics.jsonl"), Text(folder + "/rank_0.log"), Text(folder + "/outcome.json"));
  };
  const std::string before = records();
  ASSERT_THAT(before, HasSubstr("{\"state\":\"done\",\"step\":12}\n"));
  const auto fails = [&](const std::string& from, const std::string& name, const std::string& error) {
    OneRank again(0, 1, nullptr, folder);
    again.flags().resume = from;
    again.spec().parameter_names = {name};
    EXPECT_THAT(again.Train().status().message(), HasSubstr(error));
    EXPECT_EQ(records(), before);
  };
  fails("last", "other", " lacks other, which the recipe has");
  fails(folder + "/ckpt/line-1_4.ckpt", "other", " lacks other, which the recipe has");
  fails(At("mistyped"), "w", "no checkpoint at");
}

// Nothing ever improves by more than 1000: the epochs after the first one count.
void StopEarly(OneRank* rank, int64_t patience) {
  rank->spec().options.epochs = 10;
  rank->spec().early_stopping = {"eval_loss", "min", 1000, patience};
}

// What a training's callbacks see: at (step, 0) after a step, at (step, 1) at the end of its epoch.
using Seen = std::map<std::pair<int64_t, int>, std::string>;

class SeeingHook : public UserHook {
 public:
  SeeingHook(Progress* progress, Seen* seen) : progress_(progress), seen_(*seen) {}
  void InFolder(const std::string&) override {}
  const Status& late() const override { return late_; }
  int64_t NextStep(const TrainState& s) override { return step_ == s.step ? s.step + 1 : s.step; }
  Status AtStep(const TrainState& s) override {
    step_ = s.step;
    return See({s.step, 0}, s);
  }
  Status AtEpochEnd(const TrainState& s) override { return See({s.step, 1}, s); }

 private:
  Status See(const std::pair<int64_t, int>& place, const TrainState& s) {
    std::string text = absl::StrFormat("loss %a rate %a", s.loss, progress_->trainer->ScalarNow(0));
    std::map<std::string, double> found(progress_->found.begin(), progress_->found.end());
    for (const auto& [name, value] : found) absl::StrAppendFormat(&text, " %s %a", name, value);
    EXPECT_TRUE(seen_.emplace(place, text).second) << "step " << s.step << " twice";
    return absl::OkStatus();
  }

  Progress* const progress_;
  Seen& seen_;
  int64_t step_ = 0;
  Status late_;
};

// A rule of evaluation, and the number that ReduceLROnPlateau and EarlyStopping watch.
struct Watching {
  int64_t every_epochs, every_steps;
  const char* monitor;
};

// Nothing ever improves by more than 1000: the rate falls until its limit, and the training ends early.
void Watch(OneRank* rank, const Watching& watching, Seen* seen) {
  ASSERT_EQ(rank->Build(), absl::OkStatus());
  TrainingSpec& spec = rank->spec();
  spec.options.epochs = 9;
  spec.eval.every_epochs = watching.every_epochs;
  spec.eval.every_steps = watching.every_steps;
  spec.plateau = {watching.monitor, "min", 1000, 1};
  spec.plateau_options.factor = 0.5;
  spec.plateau_options.patience = 1;
  spec.plateau_options.min_lr = 0.06;
  spec.early_stopping = {watching.monitor, "min", 1000, 5};
  spec.user_hook = [seen](Progress* progress) { return std::make_unique<SeeingHook>(progress, seen); };
}

// Steps after which another training continues: ends of epochs of 4 steps, and the steps before and behind them.
constexpr int64_t kStops[] = {1, 3, 4, 5, 8, 12, 15, 16};

constexpr Watching kWatching[] = {{1, 0, "loss"},      {1, 0, "eval_loss"}, {2, 0, "eval_loss"},
                                  {1, 2, "eval_loss"}, {0, 4, "eval_loss"}, {0, 5, "eval_loss"}};

TEST_F(TrainingTest, WhatWasMeasuredComesBackAtEveryStep) {
  for (const Watching& watching : kWatching) {
    SCOPED_TRACE(absl::StrCat(watching.monitor, ", every ", watching.every_epochs, " epochs, every ",
                              watching.every_steps, " steps"));
    const std::string folder = absl::StrCat("at_", &watching - kWatching);
    Seen seen;
    OneRank whole(0, 1, nullptr, At(folder));
    Watch(&whole, watching, &seen);
    whole.spec().checkpoint.keeper.save_checkpoint_steps = 1;
    whole.spec().checkpoint.keeper.keep_checkpoint_max = 100;
    ASSERT_EQ(whole.Train().status(), absl::OkStatus());
    const int64_t last = seen.rbegin()->first.first;
    EXPECT_GE(last, 16);
    EXPECT_LT(last, 36) << "early stopping";
    EXPECT_THAT(seen.rbegin()->second, HasSubstr(absl::StrFormat("rate %a", 0.06))) << "the least rate";
    for (const int64_t step : kStops) {
      SCOPED_TRACE(absl::StrCat("step ", step));
      Seen rest;
      OneRank again(0, 1, nullptr, At(absl::StrCat(folder, "_", step)));
      Watch(&again, watching, &rest);
      again.flags().resume = absl::StrFormat("%s/ckpt/line-%d_%d.ckpt", At(folder), (step + 3) / 4, step);
      ASSERT_EQ(again.Train().status(), absl::OkStatus());
      EXPECT_EQ(rest, Seen(seen.upper_bound({step, 0}), seen.end()));
      EXPECT_EQ(again.Weights(), whole.Weights());
    }
  }
}

// max_steps may end a training at the end of an epoch, which comes in that training, and once more in the one that
// resumes from the checkpoint of the epoch's last step; elsewhere the evaluation of its end changes nothing of what
// follows.
TEST_F(TrainingTest, ATrainingResumesWhereMaxStepsHasEndedIt) {
  for (const Watching& watching : kWatching) {
    SCOPED_TRACE(absl::StrCat(watching.monitor, ", every ", watching.every_epochs, " epochs, every ",
                              watching.every_steps, " steps"));
    const std::string folder = absl::StrCat("until_", &watching - kWatching);
    Seen seen;
    OneRank whole(0, 1, nullptr, At(folder));
    Watch(&whole, watching, &seen);
    ASSERT_EQ(whole.Train().status(), absl::OkStatus());
    for (const int64_t step : kStops) {
      SCOPED_TRACE(absl::StrCat("step ", step));
      const std::string parts = At(absl::StrCat(folder, "_", step));
      Seen both, rest;
      {
        OneRank first(0, 1, nullptr, parts);
        Watch(&first, watching, &both);
        first.spec().options.max_steps = step;
        ASSERT_EQ(first.Train().status(), absl::OkStatus());
        EXPECT_EQ(both.size(), step + step / 4);
      }
      OneRank second(0, 1, nullptr, parts);
      Watch(&second, watching, &rest);
      second.flags().resume = "last";
      ASSERT_EQ(second.Train().status(), absl::OkStatus());
      EXPECT_EQ(rest, Seen(seen.upper_bound({step, 0}), seen.end()));
      both.insert(rest.begin(), rest.end());
      EXPECT_EQ(both, seen);
      EXPECT_EQ(second.Weights(), whole.Weights());
    }
  }
}

TEST_F(TrainingTest, WhatEarlyStoppingHasEndedIsNotContinued) {
  {
    OneRank first(0, 1, nullptr, At("early"));
    StopEarly(&first, 2);
    ASSERT_EQ(first.Train().status(), absl::OkStatus());
    ASSERT_EQ(Text(At("early/outcome.json")), "{\"state\":\"done\",\"step\":12}\n");
  }
  const auto resume = [this](int64_t patience) {
    OneRank next(0, 1, nullptr, At("early"));
    StopEarly(&next, patience);
    next.flags().resume = "last";
    EXPECT_EQ(next.Train().status(), absl::OkStatus());
    return Text(At("early/outcome.json"));
  };
  EXPECT_EQ(resume(2), "{\"state\":\"done\",\"step\":12}\n");
  EXPECT_EQ(resume(3), "{\"state\":\"done\",\"step\":16}\n");
  EXPECT_EQ(resume(3), "{\"state\":\"done\",\"step\":16}\n");
}

TEST_F(TrainingTest, RanksThatEarlyStoppingHasEndedMakeNoStep) {
  constexpr int kRanks = 2;
  for (int run = 0; run < 2; ++run) {
    auto world = MakeInprocWorld(kRanks);
    std::vector<std::thread> threads;
    for (int r = 0; r < kRanks; ++r) {
      threads.emplace_back([&, r] {
        OneRank one(r, kRanks, std::make_shared<Groups>(std::move(world[static_cast<size_t>(r)])), At("ended"));
        StopEarly(&one, 2);
        if (run > 0) one.flags().resume = "last";
        EXPECT_EQ(one.Train().status(), absl::OkStatus());
      });
    }
    for (std::thread& t : threads) t.join();
    EXPECT_EQ(Text(At("ended/outcome.json")), "{\"state\":\"done\",\"step\":6}\n");
  }
}

TEST_F(TrainingTest, RemovesTheFolderOfARunWithoutAStep) {
  OneRank one(0, 1, nullptr, At("bad"));
  one.flags().resume = At("nowhere");
  EXPECT_FALSE(one.Train().ok());
  EXPECT_FALSE(std::filesystem::exists(At("bad")));
}

TEST_F(TrainingTest, RanksThatTrainTogetherHaveOneFolderAndOneResult) {
  constexpr int kRanks = 2;
  auto world = MakeInprocWorld(kRanks);
  std::vector<std::vector<float>> weights(kRanks);
  std::vector<std::thread> threads;
  for (int r = 0; r < kRanks; ++r) {
    threads.emplace_back([&, r] {
      OneRank one(r, kRanks, std::make_shared<Groups>(std::move(world[static_cast<size_t>(r)])), At("two"));
      EXPECT_EQ(one.Train().status(), absl::OkStatus());
      weights[static_cast<size_t>(r)] = one.Weights();
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(weights[0], weights[1]);
  EXPECT_TRUE(std::filesystem::exists(At("two/rank_0.log")));
  EXPECT_TRUE(std::filesystem::exists(At("two/rank_1.log")));
  EXPECT_TRUE(std::filesystem::exists(At("two/ckpt/line-3_6.ckpt")));
}

TEST_F(TrainingTest, RanksWithOtherDataAreRefused) {
  constexpr int kRanks = 2;
  auto world = MakeInprocWorld(kRanks);
  std::vector<std::string> errors(kRanks);
  std::vector<std::thread> threads;
  for (int r = 0; r < kRanks; ++r) {
    threads.emplace_back([&, r] {
      OneRank one(r, kRanks, std::make_shared<Groups>(std::move(world[static_cast<size_t>(r)])), At("other"));
      if (r == 1) one.spec().open = []() -> StatusOr<TrainingData> { return Data(0, 1); };
      errors[static_cast<size_t>(r)] = std::string(one.Train().status().message());
    });
  }
  for (std::thread& t : threads) t.join();
  for (const std::string& error : errors) {
    EXPECT_THAT(error, HasSubstr("the data set of rank 1 (NumpySlicesDataset, 16 samples, 4 batches of x f32[4,2] "
                                 "y f32[4,2]) is not that of rank 0 (NumpySlicesDataset, 16 samples, 2 batches"));
  }
}

}  // namespace
}  // namespace mslua
