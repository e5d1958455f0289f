// Pipeline parallel training on ranks that are threads: the numbers of one process with the same micro-batches.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "lua/testing/rank_sessions.h"

namespace mslua {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using testing::Numbers;
using testing::RunSessions;

// Four layers in float64, each in the stage that $STAGES (a list) says, trained on 48 samples in global batches of 24.
constexpr char kTraining[] = R"(
  local ms = require "mslua"
  local core, nn, ops = require "mslua.core", ms.nn, ms.ops
  core.options.fast_dev_run = 1  -- no files
  local ranks, rank = core.options.ranks, core.options.rank
  ms.set_auto_parallel_context {parallel_mode = "semi_auto_parallel", pipeline_stages = $COUNT $CONTEXT}
  local Layer = nn.Cell:extend "Layer"
  function Layer:init(n, m)
    self.w = self:parameter("w", {n, m}, "normal", {dtype = "float64"})
    self.b = self:parameter("b", {m}, "normal", {dtype = "float64"})
    self.matmul = ops.MatMul()
  end
  function Layer:construct(x) return ops.tanh(self.matmul(x, self.w) + self.b) end
  local Net = nn.Cell:extend "Net"
  local stages = $STAGES
  function Net:init()
    local widths = {16, 24, 24, 12, 8}
    for i = 1, 4 do
      self["fc" .. i] = Layer(widths[i], widths[i + 1])
      self["fc" .. i].pipeline_stage = stages[i]
    end
    $NET
  end
  function Net:construct(x)
    for i = 1, 4 do x = self["fc" .. i](x) end
    return x
  end
  local x, y = ms.randn({48, 16}, "float64", "x"), ms.randn({48, 8}, "float64", "y")
  local ds = ms.dataset.NumpySlicesDataset({x, y}, {column_names = {"x", "y"}}):shuffle(48)
    :batch($BATCH, {drop_remainder = true})
  local net, losses = Net(), {}
  local Recorder = ms.Callback:extend "Recorder"
  function Recorder:on_train_step_end(state) losses[#losses + 1] = ("%.17g"):format(state.loss) end
  local model = $MODEL
  $BEFORE
  model:train($EPOCHS, ds, {callbacks = {Recorder() $CALLBACKS} $TRAIN})
  $RETURN
)";

struct Training {
  int stages = 2;
  std::string batch = "24 * $COUNT / math.max(ranks, $COUNT)", cells = "{0, 0, 1, 1}", micros = "4", net, context,
              optimizer = "nn.Momentum {learning_rate = 0.05, momentum = 0.9, weight_decay = 0.01}", options, model,
              before, callbacks, train, epochs = "3", result = "return table.concat(losses, ' ')";
};

std::vector<std::string> Train(int ranks, const Training& t) {
  const std::string model =
      !t.model.empty()
          ? t.model
          : absl::StrCat("ms.Model(nn.PipelineCell(net, ", t.micros,
                         "), {loss_fn = nn.MSELoss(), metrics = {'loss'}, optimizer = ", t.optimizer, t.options, "})");
  const std::string text = absl::StrReplaceAll(kTraining, {{"$BATCH", t.batch}});
  return RunSessions(ranks, absl::StrReplaceAll(text, {{"$COUNT", absl::StrCat(t.stages)},
                                                       {"$STAGES", t.cells},
                                                       {"$NET", t.net},
                                                       {"$CONTEXT", t.context},
                                                       {"$MODEL", model},
                                                       {"$BEFORE", t.before},
                                                       {"$CALLBACKS", t.callbacks},
                                                       {"$TRAIN", t.train},
                                                       {"$EPOCHS", t.epochs},
                                                       {"$RETURN", t.result}}));
}

// Every rank prints the losses of one process.
void ExpectFollowsOneRank(int ranks, const Training& t, size_t steps = 6) {
  const std::string alone = Train(1, t)[0];
  const std::vector<double> want = Numbers(alone);
  ASSERT_EQ(want.size(), steps) << alone;
  ASSERT_NE(want.front(), want.back());
  for (const std::string& text : Train(ranks, t)) {
    const std::vector<double> got = Numbers(text);
    ASSERT_EQ(got.size(), want.size()) << text;
    for (size_t i = 0; i < want.size(); ++i)
      ASSERT_NEAR(got[i] / want[i], 1, 1e-10)
          << ranks << " ranks, " << t.stages << " stages, " << t.micros << " micro-batches, step " << i + 1;
  }
}

Training FourStages() {
  Training t;
  t.stages = 4;
  t.cells = "{0, 1, 2, 3}";
  return t;
}

// Ranks of other stages, which do not keep a parameter, have been given it too.
TEST(Pipeline, RanksBeginWithOneNetwork) {
  const auto other = Each(HasSubstr("rank 1 begins with other values of 'fc4.w' than rank 0"));
  for (const int ranks : {2, 4}) {
    Training t;
    t.net = "self.fc4.w.value = self.fc4.w.value * (1 + rank)";
    EXPECT_THAT(Train(ranks, t), other);
    t.net = "self.fc4.w = self.fc4:parameter('w', {12, 8}, ms.ones({12, 8}, 'float64') * rank, {dtype = 'float64'})";
    EXPECT_THAT(Train(ranks, t), other);
    t.net.clear();
    t.before = "if rank == 1 then net.fc4.w.value = ms.ones({12, 8}, 'float64') end";
    EXPECT_THAT(Train(ranks, t), other);
    t.before.clear();
    t.net = "self.fc4.w.value = ms.ones({12, 8}, 'float64') * 0.1";
    const size_t steps = Numbers(Train(1, t)[0]).size();
    EXPECT_GT(steps, 0u);
    EXPECT_EQ(Numbers(Train(ranks, t).back()).size(), steps) << Train(ranks, t).back();
    t.net.clear();
    t.before = "model:train(1, ds)";
    EXPECT_EQ(Numbers(Train(ranks, t).back()).size(), steps) << Train(ranks, t).back();
  }
}

TEST(Pipeline, TwoStagesFollowOneRank) {
  for (const char* micros : {"2", "3", "8"}) {
    Training t;
    t.micros = micros;
    ExpectFollowsOneRank(2, t);
  }
}

TEST(Pipeline, FourStagesFollowOneRank) {
  for (const char* micros : {"4", "6"}) {
    Training t = FourStages();
    t.micros = micros;
    ExpectFollowsOneRank(4, t);
  }
}

// A label of 1e150 has a finite loss and, times the scale, infinite gradients.
TEST(Pipeline, StepsThatAreSkippedDoNotCountForAdam) {
  for (const char* optimizer :
       {"nn.Adam {learning_rate = 0.05}", "nn.SGD {learning_rate = 0.05, momentum = 0.9, dampening = 0.5}"}) {
    Training t;
    t.optimizer = optimizer;
    t.epochs = "6";
    t.options =
        ", loss_scale_manager = ms.FixedLossScaleManager(2 ^ 1000), loss_fn = function(o, l) "
        "local d = o - ops.select(ops.greater(l, 2.9), 1e150, l) return ops.reduce_mean(d * d) end";
    const std::vector<double> one = Numbers(Train(1, t)[0]);
    const auto skipped = std::count_if(one.begin(), one.end(), [](double loss) { return loss > 1e200; });
    EXPECT_GT(skipped, 1);
    EXPECT_LT(skipped, 11);
    for (int ranks : {2, 4}) ExpectFollowsOneRank(ranks, t, 12);
    t.context = ", enable_parallel_optimizer = true, parallel_optimizer_config = {parallel_optimizer_threshold = 1}";
    ExpectFollowsOneRank(4, t, 12);
  }
}

TEST(Pipeline, StagesAreCutOverTheirRanks) {
  Training t;
  ExpectFollowsOneRank(4, t);
  ExpectFollowsOneRank(6, t);
  t.net = "self.fc1.matmul:shard {{1, 2}, {2, 2}} self.fc4.matmul:shard {{2, 2}, {2, 1}}";
  t.micros = "2";
  ExpectFollowsOneRank(8, t);
}

TEST(Pipeline, AFullBatchAndRecomputation) {
  Training t;
  t.net = "self.fc2:recompute() self.fc4:recompute()";
  ExpectFollowsOneRank(2, t);
  t.context = R"(, dataset_strategy = "full_batch")";
  t.batch = "24";
  ExpectFollowsOneRank(4, t);
  t.context = ", dataset_strategy = {{2, 1}, {2, 1}}";
  ExpectFollowsOneRank(4, t);
}

TEST(Pipeline, TheSearchCutsEachStage) {
  Training t;
  t.context = R"(, parallel_mode = "auto_parallel", search_mode = "recursive_programming")";
  ExpectFollowsOneRank(4, t);
}

TEST(Pipeline, TheSearchOfAStageOfOneRank) {
  for (const char* mode : {"dynamic_programming", "recursive_programming", "sharding_propagation"}) {
    Training t;
    t.context = absl::StrCat(R"(, parallel_mode = "auto_parallel", search_mode = ")", mode, "\"");
    ExpectFollowsOneRank(2, t);
  }
}

TEST(Pipeline, OptimizerShardsOfAStage) {
  Training t;
  t.context = ", enable_parallel_optimizer = true, parallel_optimizer_config = {parallel_optimizer_threshold = 1}";
  ExpectFollowsOneRank(4, t);
}

// A weight that the first and the last stage read, in cells and outside of them.
TEST(Pipeline, AWeightOfTwoStages) {
  Training t = FourStages();
  t.net = R"(self.fc1.w2 = self.fc1:parameter("w2", {8, 8}, "normal", {dtype = "float64"})
    self.fc4.again = self.fc1.w2
    function self.fc4:construct(x) return ops.matmul(Layer.construct(self, x), self.again) end
    function self.fc1:construct(x)
      return Layer.construct(self, x) + ops.reduce_sum(ops.matmul(self.w2, self.w2)) * 0.1
    end
    function self:construct(x)
      local y = Net.construct(self, x)
      return y + ops.matmul(y, self.fc1.w2)
    end)";
  ExpectFollowsOneRank(4, t);
}

// What two stages read of one weight: its value and the sum of its gradients travel once a step.
TEST(Pipeline, AWeightOfTwoStagesTravelsOnce) {
  Training t;
  t.net = R"(self.fc1.w2 = self.fc1:parameter("w2", {8, 8}, "normal", {dtype = "float64"})
    self.fc4.other = self.fc1.w2
    function self.fc1:construct(x) return Layer.construct(self, x) + ops.reduce_sum(self.w2) end
    function self.fc4:construct(x) return ops.matmul(Layer.construct(self, x), self.other) end)";
  ExpectFollowsOneRank(2, t);
  t.result =
      "local graph = model:train_spec {train_dataset = ds, epoch = 1, accumulate_steps = 1}.graph:text() "
      "local n = 0 for line in graph:gmatch '[^\\n]+' do if line:match 'f64%[8,8%] = stage_send' or "
      "line:match 'f64%[8,8%] = stage_recv' then n = n + 1 end end return n";
  EXPECT_THAT(Train(2, t), Each(::testing::StrEq("2")));
}

// Values that jump over stages, and a node of no cell.
TEST(Pipeline, StagesThatAreJumpedOver) {
  Training t = FourStages();
  t.net = R"(function self:construct(x)
      local a = self.fc1(x)
      local b = self.fc3(self.fc2(a))
      return self.fc4(b) + ops.reduce_mean(a, {2}, true) * 0.1
    end)";
  ExpectFollowsOneRank(4, t);
}

TEST(Pipeline, WhatNeedsAllStages) {
  Training t;
  t.train = ", clip_norm = 0.02";
  ExpectFollowsOneRank(2, t);
  t.stages = 4;
  t.cells = "{0, 1, 2, 3}";
  t.train = ", clip_value = 0.001";
  ExpectFollowsOneRank(4, t);
  t.train = "";
  t.options = ", loss_scale_manager = ms.DynamicLossScaleManager(2^12, 2, 2)";
  ExpectFollowsOneRank(4, t);
}

TEST(Pipeline, WithItsLossInside) {
  Training t;
  t.model =
      absl::StrCat("ms.Model(nn.PipelineCell(nn.WithLossCell(net, nn.MSELoss()), 4), {optimizer = ", t.optimizer, "})");
  ExpectFollowsOneRank(2, t);
}

// By hand on one rank: the mean of micro-batches is that of the batch.
TEST(Pipeline, AStepByHand) {
  Training t;
  t.result = R"(
    local want = nn.MSELoss()(net(x), y):item()
    local cell = nn.PipelineCell(nn.WithLossCell(net, nn.MSELoss()), 4)
    return ('%.12g'):format(nn.TrainOneStepCell(cell, nn.SGD {learning_rate = 0.1})(x, y):item() / want))";
  EXPECT_NEAR(std::stod(Train(1, t)[0]), 1, 1e-6) << Train(1, t)[0];
}

// A stage may have no parameters, the first one too.
TEST(Pipeline, StagesWithoutParameters) {
  Training t = FourStages();
  t.cells = "{1, 1, 3, 3}";
  t.net = R"(local function sine(stage)
      local cell = nn.Cell:extend "Sine"()
      function cell:construct(x) return ops.tanh(x) * 1.5 end
      cell.pipeline_stage = stage
      return cell
    end
    self.first, self.middle = sine(0), sine(2)
    function self:construct(x)
      return self.fc4(self.fc3(self.middle(self.fc2(self.fc1(self.first(x))))))
    end)";
  ExpectFollowsOneRank(4, t);
}

TEST(Pipeline, OptimizerLevels) {
  for (const char* level : {"level1", "level3"}) {
    Training t;
    t.context = absl::StrCat(", enable_parallel_optimizer = true, parallel_optimizer_config = ",
                             "{parallel_optimizer_threshold = 1, optimizer_level = '", level, "'}");
    t.train = ", clip_norm = 0.02";
    ExpectFollowsOneRank(4, t);
  }
}

TEST(Pipeline, DropoutAndStatisticsOfMicroBatches) {
  Training t;
  t.net = R"(self.drop = nn.Dropout {p = 0.3} self.drop.pipeline_stage = 1
    self.mean = self:state("mean", {24}, "zeros")
    function self:construct(x)
      local h = self.fc2(self.fc1(x))
      core.assign(self.mean, self.mean * 0.9 + ops.reduce_mean(h:astype("float32"), {1}) * 0.1)
      return self.fc4(self.fc3(self.drop(h)))
    end)";
  ExpectFollowsOneRank(2, t);
  ExpectFollowsOneRank(4, t);
}

TEST(Pipeline, Adam) {
  Training t;
  t.optimizer = "nn.Adam {learning_rate = 0.01}";
  ExpectFollowsOneRank(2, t);
}

// Layers with residuals from any earlier one, weights of several layers, cells without a stage, strategies: whatever
// the stages, ranks of a stage and micro-batches, the losses are those of one rank.
TEST(Pipeline, RandomNetworks) {
  const std::string net = R"(for i = 1, 4 do self["fc" .. i] = nil end
    math.randomseed($SEED)
    local random, count, skip, last = math.random, math.random(5, 8), {}, -1
    for i = 1, count do
      local cell, stage = Layer(i == 1 and 16 or 8, 8), math.floor((i - 1) * $COUNT / count)
      self["l" .. i] = cell
      if stage > last or random() < 0.7 then cell.pipeline_stage = stage end
      last = stage
      if i > 2 and random() < 0.5 then skip[i] = random(1, i - 1) end
      if $SHARDED then
        cell.matmul:shard(({{{2, 1}, {1, 1}}, {{1, 2}, {2, 1}}, {{1, 1}, {1, 2}}})[random(1, 3)])
      elseif i > 2 and random() < 0.4 then
        cell.w = self["l" .. random(2, i - 1)].w
      end
    end
    function self:construct(x)
      local values = {}
      for i = 1, count do
        x = self["l" .. i](x)
        if skip[i] then x = x + values[skip[i]] end
        values[i] = x
      end
      return x
    end)";
  for (int seed = 1; seed <= 18; ++seed) {
    Training t;
    t.stages = 2 + seed % 3;
    const int of_stage = 1 + seed % 2;
    t.micros = absl::StrCat(seed % 4 == 0 ? 12 : seed % 4 == 1 ? 6 : 4);
    t.net = absl::StrReplaceAll(net, {{"$SEED", absl::StrCat(seed)},
                                      {"$SHARDED", of_stage == 2 && seed % 3 > 0 ? "true" : "false"},
                                      {"$COUNT", absl::StrCat(t.stages)}});
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    ExpectFollowsOneRank(t.stages * of_stage, t);
  }
}

// A rank has the parameters of its stage.
TEST(Pipeline, ARankHasItsStage) {
  Training t;
  t.result =
      "local names = {} for _, e in ipairs(core.store()) do names[#names + 1] = e.name end table.sort(names) "
      "return table.concat(names, ' ')";
  const std::vector<std::string> names = Train(2, t);
  EXPECT_EQ(names[0], "fc1.b fc1.w fc2.b fc2.w moments.fc1.b moments.fc1.w moments.fc2.b moments.fc2.w");
  EXPECT_EQ(names[1], "fc3.b fc3.w fc4.b fc4.w moments.fc3.b moments.fc3.w moments.fc4.b moments.fc4.w");
  t.result = "return net.fc4.w.value";
  EXPECT_THAT(Train(2, t)[0], HasSubstr("parameter 'fc4.w' is kept by the ranks of pipeline stage 1; this rank is of "
                                        "stage 0"));
}

TEST(Pipeline, EvaluatesOnAllStages) {
  Training t;
  t.result = "return ('%.15g'):format(model:eval(ds).loss)";
  const double want = std::stod(Train(1, t)[0]);
  for (int ranks : {2, 4}) {
    for (const std::string& got : Train(ranks, t)) EXPECT_NEAR(std::stod(got) / want, 1, 1e-6) << got;
  }
}

// Saved by two stages, resumed by one rank, by other stages, and by stages of two ranks each.
TEST(Pipeline, ACheckpointGoesOnWithAnyStages) {
  const std::string folder = ::testing::TempDir() + "/pipeline_ckpt";
  for (const bool integrated : {true, false}) {
    std::filesystem::remove_all(folder);
    Training t;
    const std::string save = absl::StrCat("core.options.fast_dev_run = nil core.options.out = '", folder, "'");
    t.before = save;
    t.epochs = "1";
    t.callbacks = absl::StrCat(", ms.ModelCheckpoint {config = ms.CheckpointConfig {save_checkpoint_steps = 2, ",
                               "integrated_save = ", integrated ? "true" : "false", "}}");
    for (const std::string& text : Train(4, t)) ASSERT_EQ(Numbers(text).size(), 2u) << text;
    Training whole;
    const std::vector<double> want = Numbers(Train(1, whole)[0]);
    for (const int ranks : {1, 2, 4}) {
      Training next = ranks == 4 ? FourStages() : Training();
      next.before = absl::StrCat(save, " core.options.resume = '", folder, "/ckpt'");
      for (const std::string& text : Train(ranks, next)) {
        const std::vector<double> got = Numbers(text);
        ASSERT_EQ(got.size(), 4u) << text;
        for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(got[i] / want[2 + i], 1, 1e-10) << ranks << " ranks";
      }
    }
  }
}

// A stage may have nothing to save: no parameters, only statistics, only frozen parameters, no state of an optimizer.
TEST(Pipeline, AStageWithoutParametersSaves) {
  const std::string folder = ::testing::TempDir() + "/pipeline_empty";
  const auto net = [](const char* own, int empty) {
    return absl::StrReplaceAll(
        R"(for i = 1, 4 do self["fc" .. i] = nil end
           local Empty, Full = nn.Cell:extend "Empty", Layer(16, 8)
           function Empty:init() $OWN end
           function Empty:construct(x) $USE return x * 2 end
           self.a, self.b = $ORDER
           self.a.pipeline_stage, self.b.pipeline_stage = 0, 1
           function self:construct(x) return self.b(self.a(x)) end)",
        {{"$OWN", own},
         {"$USE", absl::StrContains(own, "state")
                      ? "core.assign(self.mean, self.mean * 0.9 + ops.reduce_mean(x:astype('float32')) * 0.1)"
                  : absl::StrContains(own, "frozen") ? "x = x + self.frozen"
                                                     : ""},
         {"$ORDER", empty == 0 ? "Empty(), Full" : "Full, Empty()"}});
  };
  struct Case {
    const char* own;
    int empty;
    const char* config;
  };
  const char *const kMean = "self.mean = self:state('mean', {}, 'zeros')",
                    *const kFrozen =
                        "self.frozen = self:parameter('frozen', {1}, 'ones', {dtype = 'float64', requires_grad = "
                        "false})";
  for (const Case& c : {Case{"", 0, ""}, Case{"", 1, ", async_save = true"}, Case{"", 1, ", integrated_save = false"},
                        Case{kMean, 0, ", integrated_save = false"}, Case{kMean, 1, ""},
                        Case{kFrozen, 0, ", async_save = true"}, Case{kFrozen, 1, ""}}) {
    SCOPED_TRACE(absl::StrCat("stage ", c.empty, " has '", c.own, "'", c.config));
    std::filesystem::remove_all(folder);
    Training t;
    t.net = net(c.own, c.empty);
    t.optimizer = "nn.SGD {learning_rate = 0.05}";
    t.epochs = "2";
    const std::string undisturbed = Train(2, t)[0];
    const std::vector<double> want = Numbers(undisturbed);
    ASSERT_EQ(want.size(), 4u) << undisturbed;
    t.before = absl::StrCat("core.options.fast_dev_run = nil core.options.out = '", folder, "'");
    t.callbacks =
        absl::StrCat(", ms.ModelCheckpoint {config = ms.CheckpointConfig {save_checkpoint_steps = 1", c.config, "}}");
    t.epochs = "1";
    for (const std::string& text : Train(2, t)) ASSERT_EQ(Numbers(text).size(), 2u) << text;
    t.before += " core.options.resume = 'last'";
    t.epochs = "2";
    for (const std::string& text : Train(2, t))
      EXPECT_EQ(Numbers(text), std::vector<double>(want.begin() + 2, want.end()));
    EXPECT_EQ(Train(1, t)[0], "") << "nothing is left to train";
  }
  // What all ranks are refused, an empty stage is too.
  Training t;
  t.net = net("", 1);
  t.before = absl::StrCat("core.options.fast_dev_run = nil core.options.out = '", folder, "'");
  t.callbacks = ", ms.ModelCheckpoint {config = ms.CheckpointConfig {exception_save = true}}";
  EXPECT_THAT(Train(2, t), Each(HasSubstr("exception_save: the ranks have parts of their own")));
}

// Dropout computes nothing in an evaluation.
TEST(Pipeline, AStageMayComputeNothingInAnEvaluation) {
  for (const char* empty : {"0", "1"}) {
    Training t;
    t.net = absl::StrReplaceAll(
        R"(for i = 1, 4 do self["fc" .. i] = nil end
           local stages = $EMPTY == 0 and {0, 1} or {1, 0}
           self.drop, self.fc = nn.Dropout {p = 0.2}, Layer(16, 8)
           self.drop.pipeline_stage, self.fc.pipeline_stage = stages[1], stages[2]
           function self:construct(x)
             return $EMPTY == 0 and self.fc(self.drop(x)) or self.drop(self.fc(x))
           end)",
        {{"$EMPTY", empty}});
    t.epochs = "1";
    t.result = "return ('%.12g'):format(model:eval(ds).loss)";
    const std::string want = Train(1, t)[0];
    ASSERT_EQ(Numbers(want).size(), 1u) << want;
    EXPECT_THAT(Train(2, t), Each(want)) << "stage " << empty;
  }
}

std::string ErrorOf(const Training& t, int ranks = 4) { return Train(ranks, t)[0]; }

TEST(Pipeline, WrongStagesAreErrorsThatSayWhich) {
  Training t;
  t.stages = 3;
  EXPECT_THAT(ErrorOf(t),
              HasSubstr("pipeline_stages = 3 does not divide the job's 4 ranks: each stage has as many; start "
                        "6 ranks"));
  EXPECT_THAT(ErrorOf(t, 3), HasSubstr("pipeline_stages = 3, but no cell that runs has pipeline_stage = 2 (stage 0: "));
  t = Training();
  t.cells = "{}";
  EXPECT_THAT(ErrorOf(t),
              HasSubstr("no cell that runs has pipeline_stage = 0, 1 (set cell.pipeline_stage = 0, 1, ...)"));
  t.cells = "{0, 0, 1, 5}";
  EXPECT_THAT(ErrorOf(t), HasSubstr("pipeline_stage = 5, but pipeline_stages = 2: stages are 0 to 1"));
  t.cells = "{0, 1, 0, 1}";
  EXPECT_THAT(ErrorOf(t), HasSubstr("of stage 1 makes: a stage feeds later stages only"));
  t = Training();
  t.context = R"(, parallel_mode = "data_parallel")";
  EXPECT_THAT(ErrorOf(t), HasSubstr("pipeline_stages = 2 needs parallel_mode semi_auto_parallel or auto_parallel, got "
                                    "data_parallel"));
  t.context = ", strategy_ckpt_save_file = 'strategies.json'";
  EXPECT_THAT(ErrorOf(t), HasSubstr("strategy_ckpt_save_file is not built yet with pipeline_stages: leave it out; "));
}

TEST(Pipeline, WrongMicroBatchesAreErrors) {
  Training t = FourStages();
  t.micros = "2";
  EXPECT_THAT(ErrorOf(t), HasSubstr("PipelineCell: micro_size = 2 is less than pipeline_stages = 4"));
  t.micros = "5";
  EXPECT_THAT(ErrorOf(t), HasSubstr("PipelineCell: micro_size = 5 does not divide the batch of column 'x', 24 rows"));
  t.micros = "4";
  t.train = ", accumulate_steps = 2";
  EXPECT_THAT(ErrorOf(t), HasSubstr("accumulate_steps = 2 and PipelineCell's micro_size = 4: give one of them"));
  t = Training();
  t.model = "ms.Model(net, {loss_fn = nn.MSELoss(), optimizer = nn.SGD {learning_rate = 0.1}})";
  EXPECT_THAT(ErrorOf(t), HasSubstr("nn.PipelineCell(network, micro_size)"));
  t.model =
      "ms.Model(nn.SequentialCell {nn.PipelineCell(net, 4)}, {loss_fn = nn.MSELoss(), optimizer = nn.SGD "
      "{learning_rate = "
      "0.1}})";
  EXPECT_THAT(ErrorOf(t, 1), HasSubstr("PipelineCell: the batch is not split into micro-batches here"));
}

}  // namespace
}  // namespace mslua
