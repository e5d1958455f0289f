// Semi-automatic parallel training on ranks that are threads: whatever the strategies, the numbers of one process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "lua/testing/rank_sessions.h"

namespace mslua {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using testing::RunSessions;

// Two matrix products with a relu between them, trained on 48 samples in global batches of 24.
constexpr char kTraining[] = R"(
  local ms = require "mslua"
  local core, nn, ops = require "mslua.core", ms.nn, ms.ops
  core.options.fast_dev_run = 1  -- no files
  local ranks = core.options.ranks
  ms.set_auto_parallel_context {parallel_mode = "semi_auto_parallel" $CONTEXT}
  local Net = nn.Cell:extend "Net"
  function Net:init()
    self.w1, self.b = self:parameter("w1", {16, 24}, "normal"), self:parameter("b", {24}, "normal")
    self.w2 = self:parameter("w2", {24, 8}, "normal")
    self.matmul, self.add, self.relu, self.matmul2 = ops.MatMul(), ops.Add(), ops.ReLU(), ops.MatMul()
    $NET
  end
  function Net:construct(x)
    return self.matmul2(self.relu(self.add(self.matmul(x, self.w1), self.b)), self.w2)
  end
  local x, y = ms.randn({48, 16}, "float32", "x"), ms.randn({48, 8}, "float32", "y")
  local ds = ms.dataset.NumpySlicesDataset({x, y}, {column_names = {"x", "y"}}):shuffle(48)
    :batch($BATCH, {drop_remainder = true})
  local net, losses = Net(), {}
  local Recorder = ms.Callback:extend "Recorder"
  function Recorder:on_train_step_end(state) losses[#losses + 1] = ("%.9g"):format(state.loss) end
  local model = ms.Model(net, {loss_fn = nn.MSELoss(), metrics = {"loss"},
    optimizer = nn.Momentum {learning_rate = 0.05, momentum = 0.9, weight_decay = 0.01}})
  $BEFORE
  model:train($EPOCHS, ds, {callbacks = {Recorder()} $TRAIN})
  $RETURN
)";

struct Training {
  std::string net, context, batch = "24 / ranks", before, train, epochs = "4",
                            result = "return table.concat(losses, ' ')";
};

std::vector<std::string> Train(int ranks, const Training& t) {
  return RunSessions(ranks, absl::StrReplaceAll(kTraining, {{"$NET", t.net},
                                                            {"$CONTEXT", t.context},
                                                            {"$BATCH", t.batch},
                                                            {"$BEFORE", t.before},
                                                            {"$EPOCHS", t.epochs},
                                                            {"$TRAIN", t.train},
                                                            {"$RETURN", t.result}}));
}

std::vector<double> Numbers(const std::string& text) {
  std::vector<double> out;
  std::istringstream in(text);
  for (double v; in >> v;) out.push_back(v);
  return out;
}

// Every rank prints the losses of one process.
void ExpectFollowsOneRank(int ranks, const Training& t, size_t steps = 8) {
  Training alone = t;
  alone.net.clear();
  const std::vector<double> want = Numbers(Train(1, alone)[0]);
  ASSERT_EQ(want.size(), steps) << Train(1, alone)[0];
  for (const std::string& text : Train(ranks, t)) {
    const std::vector<double> got = Numbers(text);
    ASSERT_EQ(got.size(), want.size()) << text;
    for (size_t i = 0; i < want.size(); ++i)
      ASSERT_NEAR(got[i] / want[i], 1, 1e-5) << ranks << " ranks, step " << i + 1;
  }
}

TEST(SemiAuto, FollowsOneRankWithoutStrategies) {
  for (int ranks : {2, 3, 4}) ExpectFollowsOneRank(ranks, {});
}

TEST(SemiAuto, FollowsOneRankWithStrategies) {
  Training t;
  t.net = "self.matmul:shard {{2, 4}, {4, 1}} self.matmul2:shard {{2, 2}, {2, 2}}";
  ExpectFollowsOneRank(8, t);
  t.net = "self.matmul:shard {{1, 1}, {1, 6}} self.add:shard {{1, 6}, {6}} self.matmul2:shard {{1, 6}, {6, 1}}";
  ExpectFollowsOneRank(6, t);
}

TEST(SemiAuto, FollowsOneRankWithAFullBatchAccumulationAndClipping) {
  Training t;
  t.net = "self.matmul:shard {{2, 2}, {2, 1}}";
  t.context = R"(, dataset_strategy = "full_batch")";
  t.batch = "24";
  t.train = ", accumulate_steps = 2, clip_norm = 0.3";
  ExpectFollowsOneRank(4, t);
}

TEST(SemiAuto, EvaluationIsThatOfOneRank) {
  Training t;
  t.result = R"(return ("%.9g"):format(model:eval(ds).loss))";
  const double want = Numbers(Train(1, t)[0])[0];
  t.net = "self.matmul:shard {{2, 2}, {2, 1}}";
  for (const std::string& text : Train(4, t)) {
    ASSERT_EQ(Numbers(text).size(), 1u) << text;
    EXPECT_NEAR(Numbers(text)[0] / want, 1, 1e-5);
  }
}

// The optimizer's state is cut over all ranks, whatever the parameters' cuts; the numbers stay.
TEST(SemiAuto, FollowsOneRankWithOptimizerShards) {
  Training t;
  t.net = "self.matmul:shard {{2, 2}, {2, 1}}";
  t.context = R"(, enable_parallel_optimizer = true, parallel_optimizer_config = {parallel_optimizer_threshold = 1})";
  ExpectFollowsOneRank(4, t);
}

// A rank has its part of a parameter, and no other.
TEST(SemiAuto, ParametersArePartsFromTheStart) {
  Training t;
  t.net = "self.matmul:shard {{1, 4}, {4, 1}}";
  t.result = "return #net.w1.value, #net.w2.value";
  EXPECT_THAT(Train(4, t), Each(::testing::StrEq("4 24")));
}

// Saved by 4 ranks in parts, gone on with by 2, 3 and 1 with other cuts.
TEST(SemiAuto, ACheckpointOfPartsGoesOnWithAnyRanks) {
  const std::string folder = ::testing::TempDir() + "/semi_auto_ckpt";
  std::filesystem::remove_all(folder);
  const std::string save = absl::StrCat("core.options.fast_dev_run = nil core.options.out = '", folder, "'");
  Training t;
  t.net = "self.matmul:shard {{2, 2}, {2, 1}} self.matmul2:shard {{1, 2}, {2, 2}}";
  t.before = save;
  const std::string callbacks = "ms.ModelCheckpoint {config = ms.CheckpointConfig {save_checkpoint_steps = 4}}";
  t.epochs = "2";
  t.train = absl::StrCat(", callbacks = {Recorder(), ", callbacks, "}");
  t.result = "return table.concat(losses, ' ')";
  for (const std::string& text : Train(4, t)) ASSERT_EQ(Numbers(text).size(), 4u) << text;

  Training whole;
  const std::vector<double> want = Numbers(Train(1, whole)[0]);
  t.before = absl::StrCat(save, " core.options.resume = '", folder, "/ckpt'");
  t.epochs = "4";
  t.train = "";
  for (const auto& [ranks, net] : {std::pair{1, ""}, {2, "self.matmul2:shard {{1, 2}, {2, 1}}"}, {3, ""}}) {
    t.net = net;
    for (const std::string& text : Train(ranks, t)) {
      const std::vector<double> got = Numbers(text);
      ASSERT_EQ(got.size(), 4u) << text;
      for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(got[i] / want[4 + i], 1, 1e-5) << ranks << " ranks";
    }
  }
}

std::string FileOf(const std::string& path) {
  std::ifstream in(path);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

// The line of a dump that has this text.
std::string LineWith(const std::string& dump, const std::string& text) {
  std::istringstream in(dump);
  for (std::string line; std::getline(in, line);) {
    if (line.find(text) != line.npos) return line;
  }
  return "";
}

// The quick-start tutorial on 8 ranks: one product is cut by hand, the rest follows; the partial sums of the first
// product move by one reduce_scatter.
TEST(SemiAuto, TheQuickStartFollowsItsOneStrategy) {
  const std::string folder = ::testing::TempDir() + "/quickstart_ir";
  std::filesystem::remove_all(folder);
  Training t;
  t.net = "self.matmul:shard {{2, 4}, {4, 1}}";
  t.context = R"(, parallel_mode = "auto_parallel", search_mode = "sharding_propagation")";
  t.before = absl::StrCat("core.options.save_graphs = 2 core.options.save_graphs_path = '", folder, "'");
  ExpectFollowsOneRank(8, t);
  const std::string before = FileOf(folder + "/rank_0/Net_strategy.ir"),
                    after = FileOf(folder + "/rank_0/Net_00_traced.ir");
  EXPECT_THAT(LineWith(before, "= relu("), HasSubstr("in_strategy=\"((2,4))\""));
  EXPECT_THAT(LineWith(before, "f32[24,8] = matmul("), HasSubstr("in_strategy=\"((2,4),(4,1))\""));
  EXPECT_THAT(LineWith(after, "= matmul("), HasSubstr("f32[12,24]"));
  EXPECT_THAT(LineWith(after, "f32[12,6] = reduce_scatter("), HasSubstr("group=[0,1,2,3]"));
}

TEST(SemiAuto, StrategiesByName) {
  Training t;
  t.context = R"(, strategy = {["Net/MatMul"] = {{2, 2}, {2, 1}}, ["*/ReLU"] = {{1, 4}}})";
  t.result = "return #net.w1.value";
  EXPECT_THAT(Train(4, t), Each(::testing::StrEq("8")));
  t.result = Training().result;
  ExpectFollowsOneRank(4, t);
  t.context = R"(, strategy = {["Net/fc9/*"] = {{2, 2}, {2, 1}}})";
  EXPECT_THAT(Train(4, t)[0],
              HasSubstr("no operator is named 'Net/fc9/*' (names are cells and operator, such as 'Net/MatMul')"));
  t.context = R"(, strategy = {["Net/*"] = {{2, 0}}})";
  EXPECT_THAT(Train(4, t)[0], HasSubstr("expected cuts of at least 1, got 0"));
}

TEST(AutoParallel, EverySearchFollowsOneRank) {
  for (const char* mode : {"dynamic_programming", "recursive_programming", "sharding_propagation"}) {
    for (const int ranks : {2, 4}) {
      Training t;
      t.context = absl::StrCat(", parallel_mode = \"auto_parallel\", search_mode = \"", mode, "\"");
      ExpectFollowsOneRank(ranks, t);
      t.net = "self.matmul2:shard {{1, 2}, {2, 1}}";
      ExpectFollowsOneRank(ranks, t);
    }
  }
}

TEST(AutoParallel, AStrategyFileIsWhatTheSearchFound) {
  const std::string file = ::testing::TempDir() + "/strategies/found/s.json";
  std::filesystem::remove_all(::testing::TempDir() + "/strategies");
  Training t;
  t.context = absl::StrCat(", parallel_mode = \"auto_parallel\", strategy_ckpt_save_file = \"", file, "\"");
  const std::vector<std::string> saved = Train(2, t);
  EXPECT_THAT(FileOf(file), HasSubstr("\"operator\":\"matmul\""));
  t.context = absl::StrCat(", strategy_ckpt_load_file = \"", file, "\"");
  EXPECT_EQ(Train(2, t), saved);
  EXPECT_THAT(Train(4, t)[0], HasSubstr("is for 2 devices, here are 4"));
}

TEST(SemiAuto, WhatIsNotBuiltIsRefused) {
  Training t;
  t.context = R"(, comm_fusion = {allreduce = {mode = "auto"}})";
  EXPECT_THAT(Train(2, t)[0], HasSubstr("is not built yet in semi_auto_parallel"));
}

std::string ErrorOf(const std::string& net, int ranks = 8) {
  Training t;
  t.net = net;
  return Train(ranks, t)[0];
}

TEST(SemiAuto, BadStrategiesAreErrorsThatSayWhere) {
  EXPECT_THAT(ErrorOf("self.matmul:shard {{2, 4}}"),
              HasSubstr("MatMul: strategy ((2,4)) has 1 entries, the operator has 2 inputs"));
  EXPECT_THAT(ErrorOf("self.matmul:shard {{2}, {4, 1}}"),
              HasSubstr("entry 1 has 1 numbers, but x is f32[24,16] with 2 dimensions"));
  EXPECT_THAT(ErrorOf("self.matmul:shard {{5, 4}, {4, 1}}"), HasSubstr("is cut in 5, which does not divide 24"));
  EXPECT_THAT(ErrorOf("self.matmul:shard {{2, 4}, {2, 1}}"),
              HasSubstr("the two are one factor and need the same number"));
  EXPECT_THAT(ErrorOf("self.matmul:shard {{4, 4}, {4, 1}}"),
              HasSubstr("cuts in 16 parts, which does not divide 8 devices"));
  EXPECT_THAT(ErrorOf("self.matmul:shard {{0, 4}, {4, 1}}"), HasSubstr("expected cuts of at least 1, got 0"));
  EXPECT_THAT(ErrorOf("self.matmul:shard {}"), HasSubstr("expected a list with the cuts"));
  EXPECT_THAT(ErrorOf("self.add:shard {{2, 4}, {2}}"), HasSubstr("the two are one factor and need the same number"));
  EXPECT_THAT(ErrorOf("self.relu:shard {{2, 3}}"), HasSubstr("which does not divide 8 devices"));
  EXPECT_THAT(ErrorOf("self.relu:shard {{2, 4}, {1}}"), HasSubstr("has 2 entries, the operator has 1 inputs"));
}

TEST(SemiAuto, AParameterThatTwoOperatorsCutDifferentlyIsAnErrorNamingBoth) {
  const std::string error = ErrorOf(R"(
    self.mul1, self.mul2 = ops.Mul():shard {{8, 1}, {8, 1}}, ops.Mul():shard {{1, 8}, {1, 8}}
    function self:construct(x) return self.matmul(self.mul2(self.mul1(x, self.p), self.p), self.w3) end
    self.p, self.w3 = self:parameter("p", {24, 16}, "normal"), self:parameter("w3", {16, 8}, "normal"))");
  EXPECT_THAT(error, HasSubstr("parameter 'p'"));
  EXPECT_THAT(error, HasSubstr("is cut (8,1) by"));
  EXPECT_THAT(error, HasSubstr("and (1,8) by"));
}

}  // namespace
}  // namespace mslua
