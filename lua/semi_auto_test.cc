// Semi-automatic parallel training on ranks that are threads: whatever the strategies, the numbers of one process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "core/checkpoint/checkpoint.h"
#include "lua/testing/rank_sessions.h"

namespace mslua {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using testing::Numbers;
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
    optimizer = $OPTIMIZER})
  $BEFORE
  model:train($EPOCHS, ds, {callbacks = {Recorder()} $TRAIN})
  $RETURN
)";

struct Training {
  std::string net, context, batch = "24 / ranks", before, train, epochs = "4",
                            result = "return table.concat(losses, ' ')",
                            optimizer = "nn.Momentum {learning_rate = 0.05, momentum = 0.9, weight_decay = 0.01}";
};

std::vector<std::string> Train(int ranks, const Training& t) {
  return RunSessions(ranks, absl::StrReplaceAll(kTraining, {{"$NET", t.net},
                                                            {"$CONTEXT", t.context},
                                                            {"$BATCH", t.batch},
                                                            {"$OPTIMIZER", t.optimizer},
                                                            {"$BEFORE", t.before},
                                                            {"$EPOCHS", t.epochs},
                                                            {"$TRAIN", t.train},
                                                            {"$RETURN", t.result}}));
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

// The dump of a stage on rank 0 of a training of two steps.
std::string DumpOf(int ranks, Training t, const std::string& stage) {
  const std::string folder = ::testing::TempDir() + "/semi_auto_ir";
  std::filesystem::remove_all(folder);
  t.before += absl::StrCat(" core.options.save_graphs = 2 core.options.save_graphs_path = '", folder, "'");
  t.epochs = "1";
  EXPECT_EQ(Numbers(Train(ranks, t)[0]).size(), 2u) << Train(ranks, t)[0];
  for (const auto& file : std::filesystem::directory_iterator(folder + "/rank_0")) {
    if (absl::EndsWith(file.path().string(), "_" + stage + ".ir")) return FileOf(file.path().string());
  }
  ADD_FAILURE() << "no dump of " << stage;
  return "";
}

// Finds the rows of parameters that the rank keeps: rows.w1.
constexpr char kRowsKept[] = "local rows = {} for _, e in ipairs(core.store()) do rows[e.name] = e.shape[1] end ";

int Count(const std::string& text, const std::string& what) {
  int n = 0;
  for (size_t at = text.find(what); at != text.npos; at = text.find(what, at + 1)) ++n;
  return n;
}

// Replicated or sharded; set before or after the view, or made of a tensor; on one rank alone; trained before. The same
// values on all ranks train.
TEST(SemiAuto, RanksBeginWithOneNetwork) {
  const std::string sharded = "self.matmul:shard {{1, 1}, {1, 2}} self.matmul2:shard {{1, 2}, {2, 1}} ";
  const auto other = [](const char* name) {
    return Each(HasSubstr(
        absl::StrCat("rank 1 begins with other values of '", name, "' than rank 0: load or assign them on all ranks")));
  };
  for (const std::string& net : {std::string(), sharded}) {
    Training t;
    t.net = net + "self.w1.value = self.w1.value * (1 + core.options.rank)";
    EXPECT_THAT(Train(2, t), other("w1"));
    t.net = net + "self.w2 = ms.Parameter(ms.ones {24, 8} * core.options.rank, {name = 'w2'})";
    EXPECT_THAT(Train(2, t), other("w2"));
    t.net = net;
    for (const char* rank : {"0", "1"}) {
      t.before = absl::StrCat("if core.options.rank == ", rank, " then net.w2.value = ms.ones {24, 8} end");
      EXPECT_THAT(Train(2, t), other("w2"));
    }
    t.before = "net.w2.value = ms.ones {24, 8} * 0.1 if core.options.rank == 1 then print(net.w1.value:sum()) end";
    EXPECT_EQ(Numbers(Train(2, t)[0]).size(), 8u) << Train(2, t)[0];
    t.before = "model:train(1, ds) net.w2.value = ms.ones {24, 8} * core.options.rank";
    EXPECT_THAT(Train(2, t), other("w2"));
    t.before = "model:train(1, ds) net.w2.value = ms.ones {24, 8} model:train(1, ds)";
    EXPECT_EQ(Numbers(Train(2, t)[0]).size(), 8u) << Train(2, t)[0];
  }
  const std::string loop = R"(
    local ms = require "mslua"
    ms.set_auto_parallel_context {parallel_mode = "semi_auto_parallel", full_batch = true}
    local net = ms.nn.Dense(4, 2)
    if require("mslua.core").options.rank == 1 then net.weight.value = ms.ones {2, 4} end
    local cell = ms.nn.TrainOneStepCell(ms.nn.WithLossCell(net, ms.nn.MSELoss()), ms.nn.SGD {learning_rate = 0.5})
    cell(ms.ones {2, 4}, ms.ones {2, 2}))";
  EXPECT_THAT(RunSessions(2, loop), other("weight"));
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

TEST(SemiAuto, AFullBatchThatDiffersBetweenRanksIsAnError) {
  Training t;
  t.context = R"(, dataset_strategy = "full_batch")";
  t.batch = "24";
  t.before = R"(
    y = y + ms.communication.get_rank() * 1e-6
    ds = ms.dataset.NumpySlicesDataset({x, y}, {column_names = {"x", "y"}}):batch(24))";
  EXPECT_THAT(Train(2, t), Each(HasSubstr("the first batches of rank 0 and rank 1 differ in column 'y', but both")));
  t.context = R"(, dataset_strategy = "data_parallel")";
  EXPECT_THAT(Train(2, t), Each(Not(HasSubstr("differ in column"))));
}

TEST(SemiAuto, AnEvaluationBeforeATrainingOfLevel3) {
  Training t;
  t.net = "self.matmul:shard {{2, 1}, {1, 1}}";
  t.context = R"(, enable_parallel_optimizer = true,
    parallel_optimizer_config = {parallel_optimizer_threshold = 0, optimizer_level = "level3"})";
  t.before = "model:eval(ds)";
  ExpectFollowsOneRank(2, t);
  t.optimizer = "nn.SGD {learning_rate = 0.05}";
  ExpectFollowsOneRank(2, t);
}

TEST(SemiAuto, ACollectiveInTheNetworkIsAnError) {
  Training t;
  t.net = "self.relu = function(x) return ops.AllReduce()(ops.relu(x)) end";
  EXPECT_THAT(Train(2, t),
              Each(HasSubstr("AllReduce: in a network of semi_auto_parallel or auto_parallel tensors are")));
}

TEST(SemiAuto, TrainOneStepCellFollowsOneRank) {
  Training t;
  t.before = R"(
    local step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), $OPT)
    for epoch = 1, 4 do
      for a, b in ds:create_tuple_iterator() do losses[#losses + 1] = ("%.9g"):format(step(a, b):item()) end
    end
    function model:train() end)";
  t.before = absl::StrReplaceAll(t.before, {{"$OPT", t.optimizer}});
  const std::vector<double> want = Numbers(Train(1, t)[0]);
  ASSERT_EQ(want.size(), 8u);
  t.net = "self.matmul:shard {{2, 2}, {2, 1}}";
  for (const std::string& text : Train(4, t)) {
    const std::vector<double> got = Numbers(text);
    ASSERT_EQ(got.size(), 8u) << text;
    for (size_t i = 0; i < 8; ++i) EXPECT_NEAR(got[i] / want[i], 1, 1e-5) << "step " << i + 1;
  }
  t.net = "self.matmul:shard {{1, 3}, {3, 1}}";
  EXPECT_THAT(Train(2, t), Each(HasSubstr("shard")));
}

// After a training in global view a rank has parts of the network, of which it computes nothing by itself.
TEST(SemiAuto, PartsAreNoNetworkOfTheirOwn) {
  Training t;
  t.net = "self.matmul:shard {{1, 2}, {2, 1}}";
  for (const char* use : {"model:eval(ds)", "model:train(1, ds)", "model:predict(x)"}) {
    t.result = absl::StrCat("ms.reset_auto_parallel_context() return ", use);
    EXPECT_THAT(Train(2, t), Each(HasSubstr("in the parallel mode that it was trained with"))) << use;
  }
}

// Ranks that have parts of one network read the same batches and draw the same weights.
TEST(SemiAuto, RanksHaveOneSeedAndOneBatch) {
  Training t;
  t.before = "ms.set_seed(7 + core.options.rank)";
  EXPECT_THAT(Train(2, t), Each(HasSubstr("rank 1 has the seed 8, rank 0 has 7: give all ranks one seed, with which")));
  t = {};
  t.context = ", full_batch = true";
  t.before =
      "ds = ms.dataset.NumpySlicesDataset({x, y}, {column_names = {'x', 'y'}, num_shards = ranks, "
      "shard_id = core.options.rank}):batch(8, {drop_remainder = true})";
  EXPECT_THAT(Train(2, t), Each(HasSubstr("where both read the same batches: leave num_shards and shard_id out")));
}

TEST(SemiAuto, FollowsOneRankWithRecomputation) {
  Training t;
  t.before = "net:recompute()";
  t.net = "self.matmul:shard {{2, 2}, {2, 1}}";
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

// The optimizer's state is sharded over all ranks, whatever the parameters' strategies; the numbers stay.
TEST(SemiAuto, FollowsOneRankWithOptimizerShards) {
  for (const char* level : {"level1", "level2", "level3"}) {
    Training t;
    t.context = absl::StrCat(", enable_parallel_optimizer = true, parallel_optimizer_config = {",
                             "parallel_optimizer_threshold = 1, optimizer_level = '", level, "'}");
    t.train = ", accumulate_steps = 2";
    ExpectFollowsOneRank(4, t);
    const std::string ir = DumpOf(4, t, "traced");
    EXPECT_THAT(LineWith(ir, "%moments.w1: "), HasSubstr("f32[4,24] = input"));
    EXPECT_THAT(LineWith(ir, "%w1: "), HasSubstr(level == std::string("level3") ? "f32[4,24] =" : "f32[16,24] ="));
    // From level 2 on each micro-batch's gradient is scattered.
    EXPECT_EQ(Count(ir, "f32[4,24] = reduce_scatter("), level == std::string("level1") ? 1 : 2) << ir;
    t.net = "self.matmul:shard {{2, 2}, {2, 1}}";
    ExpectFollowsOneRank(4, t);
  }
}

// Norms, and means of rows and columns, are of whole parameters, however these and the state are sharded.
TEST(SemiAuto, FollowsOneRankWithEveryOptimizer) {
  for (const char* optimizer :
       {"nn.Lamb {learning_rate = 0.02, weight_decay = 0.01}", "nn.AdamW {learning_rate = 0.01}",
        "nn.LARS(nn.Momentum {learning_rate = 1, momentum = 0.9, weight_decay = 0.01}, {coefficient = 0.05})",
        "nn.Adafactor {learning_rate = 0.02, weight_decay = 0.01}",
        "nn.Adafactor {learning_rate = 0.02, beta1 = 0, relative_step = false}",
        "nn.RMSProp {learning_rate = 0.002, centered = true, epsilon = 0.01, momentum = 0.5}",
        "nn.Adagrad {learning_rate = 0.05}", "nn.FTRL {learning_rate = 0.05, l1 = 0.0001}"}) {
    SCOPED_TRACE(optimizer);
    for (const char* shards : {"",
                               ", enable_parallel_optimizer = true, parallel_optimizer_config = "
                               "{parallel_optimizer_threshold = 1, optimizer_level = 'level3'}"}) {
      SCOPED_TRACE(shards);
      Training t;
      t.optimizer = optimizer;
      t.context = shards;
      t.net = "self.matmul:shard {{2, 2}, {2, 1}} self.matmul2:shard {{1, 2}, {2, 2}}";
      ExpectFollowsOneRank(4, t);
    }
  }
}

// Micro-batches are sharded as the batch is: no rank gathers rows of others.
TEST(SemiAuto, AccumulationGathersNoBatch) {
  Training t;
  t.train = ", accumulate_steps = 3";
  ExpectFollowsOneRank(4, t);
  const std::string ir = DumpOf(4, t, "traced");
  for (const char* moves : {"all_gather(", "all_to_all(", "permute("}) EXPECT_EQ(Count(ir, moves), 0) << ir;
}

// The dataset's own strategy: columns arrive whole and lie as they say, and so does what has no strategy.
TEST(SemiAuto, DatasetStrategies) {
  Training t;
  t.batch = "24";
  t.context = ", dataset_strategy = {{2, 1}, {2, 1}}";
  ExpectFollowsOneRank(4, t);
  EXPECT_THAT(LineWith(DumpOf(4, t, "traced"), "= matmul("), HasSubstr("f32[12,24]"));
  t.context = ", dataset_strategy = {{1, 4}, {1, 1}}";
  ExpectFollowsOneRank(4, t);
  t.net = "self.matmul2:shard({{2, 2}, {2, 1}}, {{1, 4}})";
  ExpectFollowsOneRank(4, t);
  t.context = ", dataset_strategy = {{1, 4}, {1, 1}}, parallel_mode = 'auto_parallel'";
  ExpectFollowsOneRank(4, t);
}

// Gradients of a group of ranks travel together, as comm_fusion says.
TEST(SemiAuto, GradientsTravelInBuckets) {
  Training t;
  EXPECT_EQ(Count(DumpOf(4, t, "buckets"), " = all_reduce_start("), 1);
  t.context = ", comm_fusion = {allreduce = {mode = 'index', config = {1}}}";
  EXPECT_EQ(Count(DumpOf(4, t, "buckets"), " = all_reduce_start("), 2);
  ExpectFollowsOneRank(4, t);
  t.context = ", comm_fusion = {allreduce = {mode = 'size', config = 0}}, all_reduce_fusion_config = {1, 2}";
  t.net = "self.b.comm_fusion = 0";
  EXPECT_EQ(Count(DumpOf(4, t, "buckets"), " = all_reduce_start("), 2);
}

// Slices of gradients and of new parameters too.
TEST(SemiAuto, SlicesTravelInBuckets) {
  Training t;
  t.context = ", enable_parallel_optimizer = true, parallel_optimizer_config = {parallel_optimizer_threshold = 1}";
  t.net =
      "self.more = self:parameter('more', {16, 24}, 'normal') local inner = self.construct "
      "function self:construct(x) return inner(self, x) + self.matmul2(self.matmul(x, self.more), self.w2) end";
  const auto messages = [&](const char* name) { return Count(DumpOf(4, t, "buckets"), name); };
  EXPECT_EQ(messages(" = reduce_scatter("), 2);
  EXPECT_EQ(messages(" = all_gather("), 2);
  t.context += ", comm_fusion = {allgather = {mode = 'auto'}, reducescatter = {mode = 'size', config = 1}}";
  EXPECT_EQ(messages(" = reduce_scatter("), 1);
  EXPECT_EQ(messages(" = all_gather("), 1);
  const std::vector<std::string> cut = Train(4, t);
  t.context = "";
  EXPECT_EQ(Numbers(Train(4, t)[0]).size(), 8u);
  for (size_t i = 0; i < 8; ++i) EXPECT_NEAR(Numbers(cut[0])[i] / Numbers(Train(1, t)[0])[i], 1, 1e-5);
}

// Gradients of 16-bit parameters are summed in f32, unless gradient_fp32_sync says otherwise.
TEST(SemiAuto, GradientsOf16BitsAreSummedIn32) {
  Training t;
  t.net =
      "self.h = self:parameter('h', {16, 8}, 'zeros', {dtype = 'bfloat16'}) local inner = self.construct "
      "function self:construct(x) return inner(self, x) + "
      "ops.matmul(x:astype('bfloat16'), self.h):astype('float32') end";
  EXPECT_EQ(Count(DumpOf(4, t, "traced"), "bf16[16,8] = all_reduce("), 0);
  t.context = ", gradient_fp32_sync = false";
  EXPECT_EQ(Count(DumpOf(4, t, "traced"), "bf16[16,8] = all_reduce("), 1);
}

// Mixed precision computes gradients in bf16, and casts them to the type of the parameters.
TEST(SemiAuto, GradientsOfMixedPrecisionAreSummedInTheirOwnType) {
  Training t;
  t.optimizer += ", amp = 'bf16'";
  EXPECT_EQ(Count(DumpOf(4, t, "traced"), "bf16[16,24] = all_reduce("), 0);
  t.context = ", gradient_fp32_sync = false";
  EXPECT_EQ(Count(DumpOf(4, t, "traced"), "bf16[16,24] = all_reduce("), 1);
}

TEST(SemiAuto, PartialSumsAreAddedBeforeTheyBecomeIntegers) {
  Training t;
  t.net = R"(
    local inner = self.construct
    function self:construct(x)
      return inner(self, x) + ops.cast(ops.cast(ops.reduce_sum(x), ms.int64), ms.float32)
    end)";
  const auto expected = Numbers(Train(1, t)[0]), got = Numbers(Train(4, t)[0]);
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i] / expected[i], 1, 1e-5);
}

TEST(SemiAuto, TensorsWithoutElementsAreReshaped) {
  Training t;
  t.net = R"(
    local inner, none = self.construct, ms.zeros {0, 7, 2}
    function self:construct(x) return inner(self, x) + ops.reduce_sum(ops.reshape(none, {0, 2})) end)";
  EXPECT_EQ(Numbers(Train(2, t)[0]).size(), 8u) << Train(2, t)[0];
}

// The arguments and results of a function, and what stays as it is.
TEST(SemiAuto, FunctionsAreSharded) {
  Training t;
  t.net = R"(
    local inner, f = self.construct, ms.shard(function(a, n) return ops.relu(a) * n, "second" end, {{2, 2}, false},
                                              {{1, 4}, false})
    function self:construct(x)
      local y, second = f(inner(self, x), 2)
      assert(second == "second")
      return y
    end)";
  const std::string dump = DumpOf(4, t, "strategy");
  for (const char* cuts : {"2,2", "1,4"})
    EXPECT_THAT(dump, ::testing::ContainsRegex(absl::StrCat("= reshape\\(.*in_strategy=\"\\(\\(", cuts))) << dump;
  Training whole = t;
  whole.net = "local inner = self.construct function self:construct(x) return ops.relu(inner(self, x)) * 2 end";
  const auto expected = Numbers(Train(1, whole)[0]), got = Numbers(Train(4, t)[0]);
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i] / expected[i], 1, 1e-5);
  for (const auto& [call, message] :
       {std::pair("ms.shard(3, {{1}})", "fn: expected"),
        {"ms.shard(ops.relu, {{0}})", "at least 1, got 0"},
        {"ms.shard(ops.relu, {{1}, {1}})(x)", "in_strategy has 2 entries, and the function is given 1 value"},
        {"ms.shard(ops.relu, {{1, 1}}, {{1, 1}, false})(x)", "out_strategy has 2 entries, and the function gives 1"}}) {
    t.net = absl::StrCat("function self:construct(x) local y = ", call, " return x end");
    EXPECT_THAT(Train(2, t), Each(HasSubstr(message))) << call;
  }
}

// A reduction with cross_batch is each rank's own; what has none is everybody's.
TEST(SemiAuto, CrossBatchLeavesAReductionToEachRank) {
  Training t;
  const std::string net = R"(self.mean = ops.ReduceMean()$CROSS local inner = self.construct
    function self:construct(x)
      local y = inner(self, x)
      return y * ops.stop_gradient(self.mean(y * y, {1, 2}) * 0 + 1)
    end)";
  const int plain = Count(DumpOf(4, t, "traced"), "= all_reduce(");
  t.net = absl::StrReplaceAll(net, {{"$CROSS", ""}});
  EXPECT_EQ(Count(DumpOf(4, t, "traced"), "= all_reduce("), plain + 1);
  t.net = absl::StrReplaceAll(net, {{"$CROSS", ":add_prim_attr(\"cross_batch\", true)"}});
  EXPECT_EQ(Count(DumpOf(4, t, "traced"), "= all_reduce("), plain);
  ExpectFollowsOneRank(4, t);
}

// The search leaves such a reduction sharded as it is without one: the numbers stay.
TEST(SemiAuto, CrossBatchCountsInASearchedPlan) {
  Training t;
  t.net = R"(self.mean = ops.ReduceMean():add_prim_attr("cross_batch", true) local inner = self.construct
    function self:construct(x)
      local y = inner(self, x)
      return y * (self.mean(y * y, {1, 2}) + 1)
    end)";
  const auto want = Numbers(Train(3, t)[0]);
  t.context = ", parallel_mode = 'auto_parallel'";
  const auto got = Numbers(Train(3, t)[0]);
  ASSERT_EQ(got.size(), want.size());
  ASSERT_FALSE(got.empty());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i] / want[i], 1, 1e-5) << "step " << i;
}

// A mean that divides by the sum of the labels' weights: that of the global batch, whichever rank holds which label.
TEST(SemiAuto, WeightedMeansAreThoseOfTheGlobalBatch) {
  Training t;
  t.optimizer +=
      ", loss_fn = (function() "
      "local loss = nn.CrossEntropyLoss {weight = ms.arange(8):astype(ms.float32) * 0.5, ignore_index = 3} "
      "return function(o, y) return loss(o, ops.argmax(y, {axis = 2})) end end)()";
  for (int ranks : {2, 3}) ExpectFollowsOneRank(ranks, t);
}

// One value as several operands: each has the entry of its own, and the numbers stay.
TEST(SemiAuto, OperandsThatAreOneValueHaveStrategiesOfTheirOwn) {
  struct Case {
    const char* operators;  // fields of the network
    const char* y;          // what they make of h, of its shape
    const char* line;       // the operator in a dump
    const char* strategy;
  };
  constexpr char kQuery[] = "local q = ops.reshape(h, {24, 4, 2, 3}) ";
  const std::string attention = absl::StrCat(kQuery, "local y = self.attend(q, q, q) y = ops.reshape(y, {24, 24})");
  const Case cases[] = {
      {"self.gram = ops.MatMul {transpose_b = true}:shard {{3, 1}, {1, 1}}", "local y = ops.matmul(self.gram(h, h), h)",
       "transpose_b=true", "((3,1),(1,1))"},
      {"self.gram = ops.MatMul {transpose_b = true}:shard {{1, 1}, {3, 1}}", "local y = ops.matmul(self.gram(h, h), h)",
       "transpose_b=true", "((1,1),(3,1))"},
      {"self.gram = ops.MatMul {transpose_b = true}:shard({{2, 1}, {3, 1}}, {{3, 2}})",
       "local y = ops.matmul(self.gram(h, h), h)", "transpose_b=true", "((2,1),(3,1))"},
      {"self.square = ops.Mul():shard {{2, 3}, {2, 3}}", "local y = self.square(h, h)", "= mul(", "((2,3),(2,3))"},
      {"self.attend = ops.ScaledDotProductAttention():shard {{3, 1, 2, 1}, {3, 1, 1, 1}, {3, 1, 1, 1}}",
       attention.c_str(), "= scaled_dot_product_attention(", "((3,1,2,1),(3,1,1,1),(3,1,1,1))"},
      {"self.join = ops.Concat {axis = 2}:shard {{6, 1}, {6, 1}, {6, 1}}",
       "local y = ops.strided_slice(self.join {h, h, h}, {begin = {1, 7}, end_ = {25, 31}})", "= concat(",
       "((6,1),(6,1),(6,1))"},
      {"self.u = self:parameter('u', {24, 12}, 'normal') "
       "self.gram = ops.MatMul {transpose_b = true}:shard {{3, 1}, {2, 1}}",
       "local y = ops.matmul(h, self.gram(self.u, self.u))", "transpose_b=true", "((3,1),(2,1))"},
  };
  for (const Case& c : cases) {
    Training t;
    t.net = absl::StrCat(c.operators, R"(
      function self:construct(x)
        local h = self.add(self.matmul(x, self.w1), self.b) )",
                         c.y, R"(
        return self.matmul2(ops.tanh(y * 0.1), self.w2)
      end)");
    Training alone = t;
    alone.context = "";
    const std::vector<double> want = Numbers(Train(1, alone)[0]);
    ASSERT_EQ(want.size(), 8u) << Train(1, alone)[0];
    for (const std::string& text : Train(6, t)) {
      const std::vector<double> got = Numbers(text);
      ASSERT_EQ(got.size(), 8u) << c.operators << ": " << text;
      for (size_t i = 0; i < 8; ++i) EXPECT_NEAR(got[i] / want[i], 1, 1e-5) << c.operators;
    }
    EXPECT_THAT(LineWith(DumpOf(6, t, "strategy"), c.line),
                HasSubstr(absl::StrCat("in_strategy=\"", c.strategy, "\"")));
  }
}

// Messages have one number on all ranks, though the ranks of a group are others on each.
TEST(SemiAuto, MessagesOfDifferentGroupsHaveTheSameNumbersOnAllRanks) {
  Training t;
  t.net = "self.matmul:shard {{2, 1}, {1, 4}} self.matmul2:shard {{1, 2}, {2, 4}}";
  for (const char* level : {"level1", "level2", "level3"}) {
    t.context = absl::StrCat(
        ", enable_parallel_optimizer = true, parallel_optimizer_config = {parallel_optimizer_threshold = 1, "
        "optimizer_level = '",
        level,
        "'}, comm_fusion = {allreduce = {mode = 'auto'}, allgather = {mode = 'auto'}, reducescatter = {mode = "
        "'auto'}}");
    ExpectFollowsOneRank(8, t);
    const std::string folder = ::testing::TempDir() + "/fusion_ir";
    std::filesystem::remove_all(folder);
    Training dump = t;
    dump.before = absl::StrCat(" core.options.save_graphs = 2 core.options.save_graphs_path = '", folder, "'");
    Train(8, dump);
    const auto numbers = [&](int rank) {
      std::vector<std::string> found;
      const std::string ir = FileOf(absl::StrCat(folder, "/rank_", rank, "/01_traced.ir"));
      for (size_t at = ir.find("fusion="); at != ir.npos; at = ir.find("fusion=", at + 1))
        found.push_back(ir.substr(at, ir.find_first_of(",}", at) - at));
      return found;
    };
    const auto first = numbers(0);
    EXPECT_GT(first.size(), 2u);
    for (int r = 1; r < 8; ++r) EXPECT_EQ(numbers(r), first) << level << ", rank " << r;
  }
}

// A rank has its part of a parameter, and no other.
TEST(SemiAuto, ParametersArePartsFromTheStart) {
  Training t;
  t.net = "self.matmul:shard {{1, 4}, {4, 1}}";
  t.result = absl::StrCat(kRowsKept, "return rows.w1, rows.w2");
  EXPECT_THAT(Train(4, t), Each(::testing::StrEq("4 24")));
}

// Values that are set, and looked at, before there is a graph are sharded when there is one.
TEST(SemiAuto, ParametersThatWereWholeAreCut) {
  Training t;
  t.net = "self.matmul:shard {{1, 4}, {4, 1}}";
  t.before = "net.w1.value, net.b.value = net.w1.value * 0.5, ms.ones({24}) assert(#net.w1.value == 16)";
  ExpectFollowsOneRank(4, t);
  t.result = absl::StrCat(kRowsKept, "return rows.w1, rows.w2");
  EXPECT_THAT(Train(4, t), Each(::testing::StrEq("4 24")));
}

// Trainings whose ranks keep parts of parameters.
std::vector<Training> OfParts() {
  Training cut, level3;
  cut.net = "self.matmul:shard {{1, 1}, {1, 4}} self.matmul2:shard {{1, 4}, {4, 1}}";
  level3.context =
      ", enable_parallel_optimizer = true, parallel_optimizer_config = {parallel_optimizer_threshold = 0, "
      "optimizer_level = 'level3'}";
  return {cut, level3};
}

// After training every rank gives the numbers of one rank.
void ExpectResultOfOneRank(Training t, const std::string& result) {
  t.result = absl::StrCat(
      "local numbers = {} local function add(v) if type(v) == 'table' then for _, item in ipairs(v) do add(item) end "
      "else numbers[#numbers + 1] = ('%.9g'):format(v) end end ",
      "assert(core.is_part(net.w1) == (ranks > 1)) ", result, " return table.concat(numbers, ' ')");
  Training alone = t;
  alone.net.clear();
  const std::vector<double> want = Numbers(Train(1, alone)[0]);
  ASSERT_GT(want.size(), 1u) << Train(1, alone)[0];
  for (const std::string& text : Train(4, t)) {
    const std::vector<double> got = Numbers(text);
    ASSERT_EQ(got.size(), want.size()) << text;
    for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got[i], want[i], 1e-5) << result << ", number " << i + 1;
  }
}

// What a rank reads, and is given, is whole, of whatever part it keeps.
TEST(SemiAuto, ValuesAreReadAndSetWhole) {
  for (const Training& t : OfParts()) {
    ExpectResultOfOneRank(t, "add(net.w1.value:totable()) add(net.b.value:totable()) add(net.w2.value:totable())");
    ExpectResultOfOneRank(t,
                          "net.w1.value = ops.clip(net.w1.value, -0.005, 0.005) add(net.w1.value:totable()) "
                          "add(model:eval(ds).loss)");
  }
}

TEST(SemiAuto, ARankThatReadsAloneIsAnError) {
  Training t = OfParts()[0];
  t.before = "function Recorder:on_train_step_end(state) if core.options.rank == 0 then local _ = net.w1.value end end";
  EXPECT_THAT(Train(4, t),
              ::testing::Contains(HasSubstr("all ranks of a group make the same calls in the same order")));
}

TEST(SemiAuto, PredictionsAreThoseOfOneRank) {
  for (const Training& t : OfParts()) ExpectResultOfOneRank(t, "add(model:predict(x):totable())");
}

TEST(SemiAuto, RanksPredictTogetherForTheSameInputs) {
  Training t = OfParts()[0];
  t.result = "return model:predict(x + core.options.rank)";
  EXPECT_THAT(Train(4, t), Each(HasSubstr("predict: argument 1 of rank 1 is f32[48,16] with other numbers than that "
                                          "of rank 0: the ranks keep parts of the parameters")));
  t.result = "return model:predict(ms.ones {core.options.rank + 2, 16})";
  EXPECT_THAT(Train(4, t), Each(HasSubstr("predict: argument 1 of rank 1 is f32[3,16] and that of rank 0 is "
                                          "f32[2,16]")));
}

// No rank computes with its part as if it was the whole, or the whole of something smaller.
TEST(SemiAuto, WhatARankComputesByItselfNeedsTheWhole) {
  for (const char* use :
       {"net(x)", "net.w1 * 2", "net.w1:sum()", "net.w1:totable()", "ms.Tensor(net.w1)",
        "ms.value_and_grad(function(v) return (net(v) ^ 2):mean() end, nil, {net.w1})(x)",
        "ms.grad(function(w) return (w ^ 2):sum() end)(net.w1)", "core.trace(net, {{shape = {48, 16}}}):run(x)"}) {
    Training t = OfParts()[0];
    t.result = absl::StrCat("return ", use);
    EXPECT_THAT(Train(4, t), Each(HasSubstr("parameter 'w1' is f32[16,24], and this rank keeps f32[16,6] of it: what a "
                                            "rank computes by itself would be of its part; evaluate with model:eval")))
        << use;
  }
  // Compiled before there were parts.
  Training t = OfParts()[0];
  t.before = "local early = core.trace(net, {{shape = {48, 16}}}) early:run(x)";
  t.result = "return early:run(x)";
  EXPECT_THAT(Train(4, t), Each(HasSubstr("parameter 'w1' is f32[16,24], and this rank keeps f32[16,6] of it")));
}

// A file has whole tensors, whether all ranks name one or each its own.
TEST(SemiAuto, SavedFilesAreWhole) {
  const std::string folder = ::testing::TempDir() + "/semi_auto_whole";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  const std::string read =
      "add(saved.w1:totable()) add(saved.b:totable()) add(saved.w2:totable()) assert(next(saved.w1.shape) == 1)";
  for (const Training& t : OfParts()) {
    for (const char* name : {"'all.safetensors'", "'all.npz'", "core.options.rank .. '.safetensors'", "'folder'"}) {
      const bool npz = absl::StrContains(name, "npz");
      ExpectResultOfOneRank(
          t, absl::StrCat("local path = '", folder, "/' .. ", name, " ms.save_checkpoint(net, path) ",
                          npz ? "add({1, 2})" : "local saved = ms.load_checkpoint(path) ", npz ? "" : read));
    }
    ExpectResultOfOneRank(t, absl::StrCat("local path = '", folder,
                                          "/table.safetensors' ms.save_checkpoint({w1 = net.w1, b = net.b, w2 = net.w2"
                                          "}, path) local saved = ms.load_checkpoint(path) ",
                                          read));
  }
}

// Of a published family, with adapters and without: the files of one rank.
TEST(SemiAuto, PublishedFilesAreWhole) {
  const std::string folder = ::testing::TempDir() + "/semi_auto_published";
  const char* const script = R"(
    local ms = require "mslua"
    local core, nn, ops = require "mslua.core", ms.nn, ms.ops
    core.options.fast_dev_run = 1
    ms.set_auto_parallel_context {parallel_mode = "semi_auto_parallel", dataset_strategy = "full_batch",
      enable_parallel_optimizer = true,
      parallel_optimizer_config = {parallel_optimizer_threshold = 0, optimizer_level = "level3"}}
    local net = require "llama" {vocab = 24, block = 8, layers = 1, heads = 2, kv_heads = 1, dim = 16, hidden = 32}
    if $ADAPTER then nn.LoRA.apply(net, {rank = 4, targets = "q_proj|v_proj", also_train = "norm"}) end
    local x = ops.cast(ms.rand({4, 8}, "float32", "x") * 23.9, "int32")
    local ds = ms.dataset.NumpySlicesDataset({x, x}, {column_names = {"x", "y"}}):batch(4)
    local optimizer = nn.Momentum {learning_rate = 0.1, momentum = 0.9}
    ms.Model(net, {loss_fn = nn.CrossEntropyLoss(), optimizer = optimizer}):train(2, ds)
    local parts = 0
    for _, p in ipairs(net:get_parameters()) do parts = parts + (core.is_part(p) and 1 or 0) end
    assert((parts > 0) == (core.options.ranks > 1))
    $SAVE
    local saved, names, numbers = ms.load_checkpoint("$FOLDER/$FILE"), {}, {}
    for name in pairs(saved) do names[#names + 1] = name end
    table.sort(names)
    local function add(v)
      if type(v) ~= "table" then numbers[#numbers + 1] = ("%.7g"):format(v) return end
      for _, item in ipairs(v) do add(item) end
    end
    for _, name in ipairs(names) do add(saved[name].shape) add(saved[name]:totable()) end
    return table.concat(numbers, " ")
  )";
  for (const bool adapter : {false, true}) {
    const auto run = [&](int ranks) {
      std::filesystem::remove_all(folder);
      std::filesystem::create_directories(folder);
      const std::string function = adapter ? "save_adapter" : "save_pretrained";
      return RunSessions(
          ranks, absl::StrReplaceAll(script, {{"$ADAPTER", adapter ? "true" : "false"},
                                              {"$SAVE", absl::StrCat("ms.", function, "(net, '", folder, "')")},
                                              {"$FOLDER", folder},
                                              {"$FILE", adapter ? "adapter_model.safetensors" : "model.safetensors"}}));
    };
    const std::vector<double> want = Numbers(run(1)[0]);
    ASSERT_GT(want.size(), 100u) << run(1)[0];
    for (const std::string& text : run(2)) {
      const std::vector<double> got = Numbers(text);
      ASSERT_EQ(got.size(), want.size()) << text;
      for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got[i], want[i], 1e-5) << adapter << ", number " << i + 1;
    }
  }
}

TEST(SemiAuto, WhatOneRankCannotWriteIsAnErrorOnAll) {
  Training t = OfParts()[0];
  t.result = "ms.save_checkpoint(net, '/proc/no such folder/net.safetensors') return 'saved'";
  const std::vector<std::string> results = Train(4, t);
  EXPECT_THAT(results, Each(HasSubstr("/proc/no such folder")));
  EXPECT_THAT(results[1], HasSubstr("save_checkpoint: rank 0: "));
}

// Saved by 4 ranks in parts, resumed by 2, 3 and 1 with other strategies.
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

// Two steps on some ranks, saved in parts or whole; then loaded by others, which save again what they have.
struct Saved {
  int ranks;
  std::string net, context;
  bool integrated;
};

void SaveTwoSteps(const Saved& how, const std::string& folder, const std::string& from) {
  std::filesystem::remove_all(folder);
  Training t;
  t.net = how.net;
  t.context = how.context;
  t.before = absl::StrCat("core.options.fast_dev_run = nil core.options.out = '", folder, "'");
  if (!from.empty()) absl::StrAppend(&t.before, " core.options.resume = '", from, "'");
  t.train = absl::StrCat(", callbacks = {ms.ModelCheckpoint {config = ms.CheckpointConfig {save_checkpoint_steps = 2, ",
                         "integrated_save = ", how.integrated ? "true" : "false", "}}}, max_steps = 2");
  t.result = "return 'done'";
  EXPECT_THAT(Train(how.ranks, t), Each(::testing::StrEq("done")));
}

std::unique_ptr<checkpoint::Checkpoint> CheckpointIn(const std::string& folder) {
  auto found = checkpoint::LoadCheckpoint(folder + "/ckpt");
  EXPECT_TRUE(found.ok()) << found.status();
  return found.ok() ? *std::move(found) : nullptr;
}

// Tensors by name, as bytes; what was saved flat (data parallel slices) is the same bytes.
std::map<std::string, std::string> TensorsIn(const std::string& folder) {
  std::map<std::string, std::string> all;
  const auto found = CheckpointIn(folder);
  for (const auto& t : found->manifest().tensors) {
    std::string& bytes = all[t.name];
    bytes.resize(static_cast<size_t>(t.type.bytes()));
    EXPECT_TRUE(found->Read(t.name, &bytes[0]).ok());
  }
  return all;
}

// Whatever ranks, strategies and modes save and load: parameters and the optimizer's state stay bit for bit.
TEST(SemiAuto, CheckpointsAreTheSameWhoeverSavesAndLoads) {
  const std::string shards =
      ", enable_parallel_optimizer = true, parallel_optimizer_config = {parallel_optimizer_threshold = 1}";
  const std::string cut = "self.matmul:shard {{2, 2}, {2, 1}} self.matmul2:shard {{1, 2}, {2, 2}}";
  const std::string data = shards + ", parallel_mode = 'data_parallel'";
  const std::string first = ::testing::TempDir() + "/saved_first";
  SaveTwoSteps({4, cut, shards, false}, first, "");
  EXPECT_EQ(CheckpointIn(first)->manifest().files.size(), 4u);
  const auto want = TensorsIn(first);
  ASSERT_EQ(want.count("moments.Net.w1") + want.count("moments.w1"), 1u) << want.begin()->first;

  std::string before = first;
  int n = 0;
  for (const Saved& next : {Saved{4, cut, "", true},
                            {1, "", "", true},
                            {3, "", shards, false},
                            {2, "", data, true},
                            {6, "self.matmul2:shard {{1, 3}, {3, 2}}", shards, true},
                            {4, "", data, false},
                            {8, "self.matmul:shard {{2, 4}, {4, 1}}", "", false},
                            {1, "", "", true}}) {
    const std::string folder = absl::StrCat(::testing::TempDir(), "/saved_again_", n++);
    SaveTwoSteps(next, folder, before + "/ckpt");
    EXPECT_EQ(CheckpointIn(folder)->manifest().files.size(), next.integrated ? 1u : static_cast<size_t>(next.ranks));
    EXPECT_EQ(TensorsIn(folder), want) << "saved by " << next.ranks << " ranks with " << next.net << next.context;
    before = folder;
  }
}

// The quick-start tutorial on 8 ranks: one product is sharded by hand, the rest follows; the partial sums of the first
// product move by one reduce_scatter.
TEST(SemiAuto, TheQuickStartFollowsItsOneStrategy) {
  const std::string folder = ::testing::TempDir() + "/quickstart_ir";
  std::filesystem::remove_all(folder);
  Training t;
  t.net = "self.matmul:shard {{2, 4}, {4, 1}}";
  t.context = R"(, parallel_mode = "auto_parallel", search_mode = "sharding_propagation")";
  t.before = absl::StrCat("core.options.save_graphs = 2 core.options.save_graphs_path = '", folder, "'");
  ExpectFollowsOneRank(8, t);
  const std::string before = FileOf(folder + "/rank_0/00_strategy.ir"), after = FileOf(folder + "/rank_0/01_traced.ir");
  EXPECT_THAT(LineWith(before, "= relu("), HasSubstr("in_strategy=\"((2,4))\""));
  EXPECT_THAT(LineWith(before, "f32[24,8] = matmul("), HasSubstr("in_strategy=\"((2,4),(4,1))\""));
  EXPECT_THAT(LineWith(before, "f32[24,8] = matmul("), HasSubstr("  # Net {instance name: matmul2} @ "));
  EXPECT_THAT(LineWith(after, "= matmul("), HasSubstr("f32[12,24]"));
  EXPECT_THAT(LineWith(after, "f32[12,6] = reduce_scatter("), HasSubstr("group=[0,1,2,3]"));
}

TEST(SemiAuto, StrategiesByName) {
  Training t;
  t.context = R"(, strategy = {["Net/MatMul"] = {{2, 2}, {2, 1}}, ["*/ReLU"] = {{1, 4}}})";
  t.result = absl::StrCat(kRowsKept, "return rows.w1");
  EXPECT_THAT(Train(4, t), Each(::testing::StrEq("8")));
  t.context = R"(, strategy = {["Net/MatMul:*"] = {{2, 2}, {2, 1}}})";  // with the line of the call
  EXPECT_THAT(Train(4, t), Each(::testing::StrEq("8")));
  t.context = R"(, strategy = {["Net/MatMul"] = {{2, 2}, {2, 1}}, ["*/ReLU"] = {{1, 4}}})";
  t.result = Training().result;
  ExpectFollowsOneRank(4, t);
  // The pattern that says most counts: the others would be errors.
  t.context = R"(, strategy = {["*/MatMul"] = {{1, 3}, {3, 1}}, ["N*"] = {{1, 3}}, ["Net/MatMul"] = {{2, 2}, {2, 1}},
    ["Net/A*"] = {{2, 2}, {2}}, ["Net/R*"] = {{1, 4}}})";
  ExpectFollowsOneRank(4, t);
  t.result = absl::StrCat(kRowsKept, "return rows.w1");
  EXPECT_THAT(Train(4, t), Each(::testing::StrEq("8")));
  t.context = R"(, strategy = {["Net/MatMul:999"] = {{2, 2}, {2, 1}}})";
  EXPECT_THAT(Train(4, t)[0], HasSubstr("no operator is named 'Net/MatMul:999'"));
  t.context = R"(, strategy = {["Net/fc9/*"] = {{2, 2}, {2, 1}}})";
  EXPECT_THAT(Train(4, t)[0],
              HasSubstr("no operator is named 'Net/fc9/*' (names are cells and operator, such as 'Net/MatMul')"));
  t.context = R"(, strategy = {["Net/*"] = {{2, 0}}})";
  EXPECT_THAT(Train(4, t)[0], HasSubstr("expected numbers of shards of at least 1, got 0"));
}

// A later training of the same program has its own strategies.
TEST(SemiAuto, StrategiesByNameOfALaterTraining) {
  Training t;
  t.context = R"(, strategy = {["Net/MatMul"] = {{2, 2}, {2, 1}}})";
  t.result = absl::StrCat(R"(
    ms.reset_auto_parallel_context()
    ms.set_auto_parallel_context {parallel_mode = "semi_auto_parallel", strategy = {["Net/MatMul"] = {{1, 4}, {4, 1}}}}
    net = Net()
    model = ms.Model(net, {loss_fn = nn.MSELoss(), optimizer = nn.SGD {learning_rate = 0.05}})
    model:train(1, ds))",
                          kRowsKept, "return rows['w1#2']");
  EXPECT_THAT(Train(4, t), Each(::testing::StrEq("4")));
  t.result = R"(
    ms.reset_auto_parallel_context()
    ms.set_auto_parallel_context {parallel_mode = "semi_auto_parallel", strategy = {["Net/fc9/*"] = {{1, 4}, {4, 1}}}}
    model = ms.Model(Net(), {loss_fn = nn.MSELoss(), optimizer = nn.SGD {learning_rate = 0.05}})
    model:train(1, ds))";
  EXPECT_THAT(Train(4, t), Each(HasSubstr("no operator is named 'Net/fc9/*'")));
}

TEST(SemiAuto, StrategiesByNameReachThePartsOfACall) {
  const std::string folder = ::testing::TempDir() + "parts";
  Training t;
  t.before = absl::StrCat("net.relu = nn.GELU(false) core.options.save_graphs = 2 core.options.save_graphs_path = '",
                          folder, "'");
  t.context = R"(, strategy = {["Net/relu/gelu_erf"] = {{2, 2}}})";
  ExpectFollowsOneRank(4, t);
  EXPECT_THAT(LineWith(FileOf(folder + "/rank_0/00_strategy.ir"), "= gelu_erf("), HasSubstr("in_strategy=\"((2,2))\""));
  t.context = R"(, strategy = {["Net/relu/gelu_erf"] = {{2, 2}, {2, 2}}})";
  EXPECT_THAT(Train(4, t)[0], HasSubstr("gelu_erf: strategy ((2,2),(2,2)): has 2 entries, the operator has 1 input"));
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

TEST(AutoParallel, AStrategyFileMayHaveAPathForEachRank) {
  const std::string folder = ::testing::TempDir() + "/strategies/each";
  std::filesystem::remove_all(folder);
  const std::string path = absl::StrCat("\"", folder, "/rank_\" .. ms.communication.get_rank() .. \"/s.json\"");
  Training t;
  t.context = absl::StrCat(", parallel_mode = \"auto_parallel\", strategy_ckpt_save_file = ", path);
  const std::vector<std::string> saved = Train(2, t);
  EXPECT_EQ(FileOf(folder + "/rank_1/s.json"), FileOf(folder + "/rank_0/s.json"));
  t.context = absl::StrCat(", strategy_ckpt_load_file = ", path);
  EXPECT_EQ(Train(2, t), saved);
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
  EXPECT_THAT(ErrorOf("self.matmul:shard {{5, 4}, {4, 1}}"), HasSubstr("is sharded 5 ways, which does not divide 24"));
  EXPECT_THAT(ErrorOf("self.matmul:shard {{2, 4}, {2, 1}}"),
              HasSubstr("the two are one factor and need the same number"));
  EXPECT_THAT(ErrorOf("self.matmul:shard {{4, 4}, {4, 1}}"),
              HasSubstr("has 16 shards, which does not divide 8 devices"));
  EXPECT_THAT(ErrorOf("self.matmul:shard {{0, 4}, {4, 1}}"),
              HasSubstr("expected numbers of shards of at least 1, got 0"));
  EXPECT_THAT(ErrorOf("self.matmul:shard {}"), HasSubstr("expected a list with the numbers of shards"));
  EXPECT_THAT(ErrorOf("self.add:shard {{2, 4}, {2}}"), HasSubstr("the two are one factor and need the same number"));
  EXPECT_THAT(ErrorOf("self.relu:shard {{2, 3}}"), HasSubstr("which does not divide 8 devices"));
  EXPECT_THAT(ErrorOf("self.relu:shard {{2, 4}, {1}}"), HasSubstr("has 2 entries, the operator has 1 input"));
  EXPECT_THAT(ErrorOf("self.relu:shard({{2, 4}}, {{2, 4}, {1}})"),
              HasSubstr("out_strategy ((2,4),(1)) has 2 entries, the operator has 1 outputs"));
}

// Networks may use the first result of an operator alone: its strategy may stand alone.
TEST(SemiAuto, TheFirstOutputsMayHaveStrategiesAlone) {
  Training t;
  t.net =
      "self.split = ops.Split(2, 2):shard({{4, 1}}, {{2, 2}}) local inner = self.construct "
      "function self:construct(x) local a, b = self.split(x) return inner(self, ops.concat({a, b}, 2)) end";
  ExpectFollowsOneRank(4, t);
}

TEST(SemiAuto, AParameterThatTwoOperatorsCutDifferentlyIsAnErrorNamingBoth) {
  const std::string error = ErrorOf(R"(
    self.mul1, self.mul2 = ops.Mul():shard {{8, 1}, {8, 1}}, ops.Mul():shard {{1, 8}, {1, 8}}
    function self:construct(x) return self.matmul(self.mul2(self.mul1(x, self.p), self.p), self.w3) end
    self.p, self.w3 = self:parameter("p", {24, 16}, "normal"), self:parameter("w3", {16, 8}, "normal"))");
  EXPECT_THAT(error, HasSubstr("parameter 'p'"));
  EXPECT_THAT(error, HasSubstr("is sharded (8,1) by"));
  EXPECT_THAT(error, HasSubstr("and (1,8) by"));
}

}  // namespace
}  // namespace mslua
