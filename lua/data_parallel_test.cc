// Data parallel training on ranks that are threads: the invariants of docs/howto/data_parallel.md.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "lua/testing/rank_sessions.h"

namespace mslua {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::Numbers;
using testing::RunSessions;

// Trains a small network on 48 samples, in global batches of 24, and returns what $RETURN says; `losses` has the
// rank's loss of each step.
constexpr char kTraining[] = R"(
  local ms = require "mslua"
  local core, nn, ops = require "mslua.core", ms.nn, ms.ops
  core.options.fast_dev_run = 1  -- no files
  local ranks, rank = core.options.ranks, core.options.rank
  local Net = nn.Cell:extend "Net"
  function Net:init()
    self.fc1, self.fc2 = nn.Dense(6, 16, {weight_init = "xavier_uniform"}), nn.Dense(16, 3)
    $NET
  end
  function Net:construct(x)
    x = ops.tanh(self.fc1(x))
    if self.drop then x = self.drop(x) end
    return self.fc2(x)
  end
  local x, y = ms.randn({48, 6}, "float32", "x"), ms.randn({48, 3}, "float32", "y")
  ms.set_auto_parallel_context {parallel_mode = "data_parallel", gradients_mean = true, $CONTEXT}
  local ds = ms.dataset.NumpySlicesDataset({x, y}, {column_names = {"x", "y"}}):shuffle(48)
    :batch(24 / ranks, {drop_remainder = true})
  local net, losses = Net(), {}
  local Recorder = ms.Callback:extend "Recorder"
  function Recorder:on_train_step_end(state) losses[#losses + 1] = ("%.9g"):format(state.loss) end
  local opt = $OPTIMIZER
  local model = ms.Model(net, {loss_fn = nn.MSELoss(), optimizer = opt $MODEL})
  $BEFORE
  model:train(25, ds, {callbacks = {Recorder() $CALLBACKS} $TRAIN})
  $RETURN
)";

struct Training {
  std::string net, context, optimizer = "nn.Momentum {learning_rate = 0.1, momentum = 0.9}", model, before, train,
                            result = "return table.concat(losses, ' ')", callbacks;
  int max_steps = 0;
};

std::vector<std::string> Train(int ranks, const Training& t) {
  return RunSessions(
      ranks,
      absl::StrReplaceAll(
          kTraining, {{"$NET", t.net},
                      {"$CONTEXT", t.context},
                      {"$OPTIMIZER", t.optimizer},
                      {"$MODEL", t.model},
                      {"$BEFORE", t.before},
                      {"$TRAIN", t.max_steps == 0 ? t.train : absl::StrCat(t.train, ", max_steps = ", t.max_steps)},
                      {"$RETURN", t.result},
                      {"$CALLBACKS", t.callbacks}}));
}

// The mean over ranks of each step's loss.
std::vector<double> MeanLosses(int ranks, const Training& t) {
  std::vector<double> mean;
  for (const std::string& text : Train(ranks, t)) {
    const std::vector<double> mine = Numbers(text);
    EXPECT_EQ(mine.size(), 50u) << text;
    mean.resize(std::max(mean.size(), mine.size()), 0);
    for (size_t i = 0; i < mine.size(); ++i) mean[i] += mine[i] / ranks;
  }
  return mean;
}

void ExpectFollows(const std::vector<double>& got, const std::vector<double>& want, double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got[i] / want[i], 1, tolerance) << "step " << i + 1;
}

TEST(DataParallel, FollowsOneRank) {
  const std::vector<double> one = MeanLosses(1, {});
  ASSERT_EQ(one.size(), 50u);
  EXPECT_LT(one.back(), 0.9 * one.front());
  for (int ranks : {2, 3, 4, 8}) {
    SCOPED_TRACE(ranks);
    ExpectFollows(MeanLosses(ranks, {}), one, 1e-5);
  }
}

TEST(DataParallel, FollowsOneRankWithClippingAccumulationAndAdam) {
  Training t;
  t.optimizer = "nn.Adam {learning_rate = 0.01, weight_decay = 0.01}";
  t.train = ", clip_norm = 0.2, accumulate_steps = 3";
  ExpectFollows(MeanLosses(2, t), MeanLosses(1, t), 1e-5);
}

TEST(DataParallel, FollowsOneRankWithALossScale) {
  Training t;
  t.model = ", loss_scale_manager = ms.DynamicLossScaleManager(2^10, 2, 5)";
  ExpectFollows(MeanLosses(2, t), MeanLosses(1, {}), 1e-5);
}

// A label of 1e18 has a finite loss and, times the scale, infinite gradients: on the rank that has its row, say.
TEST(DataParallel, FollowsOneRankWithStepsThatAreSkipped) {
  Training t;
  t.optimizer = "nn.Adam {learning_rate = 0.01}";
  t.model =
      ", loss_scale_manager = ms.FixedLossScaleManager(2 ^ 100), loss_fn = function(o, l) "
      "local d = o - ops.select(ops.greater(l, 2.3), 1e18, l) return ops.reduce_mean(d * d) end";
  const std::vector<double> one = MeanLosses(1, t);
  const auto skipped = std::count_if(one.begin(), one.end(), [](double loss) { return loss > 1e30; });
  EXPECT_GT(skipped, 5);
  EXPECT_LT(skipped, 45);
  for (int ranks : {2, 3}) ExpectFollows(MeanLosses(ranks, t), one, 1e-5);
  t.context = "enable_parallel_optimizer = true, parallel_optimizer_config = {parallel_optimizer_threshold = 1}";
  ExpectFollows(MeanLosses(2, t), one, 1e-5);
  t.context = "";
  t.train = ", accumulate_steps = 3";
  ExpectFollows(MeanLosses(2, t), one, 1e-5);
}

// The order of pairs is no rank's own: all have the same parameters, in the same order, and the same graph.
TEST(DataParallel, FollowsOneRankWithLoopsOfPairs) {
  Training t;
  t.net = R"(
    local sizes = {alpha = 16, beta = 16, gamma = 16, delta = 16, epsilon = 16, zeta = 16, eta = 16, theta = 16}
    local Heads = nn.Cell:extend "Heads"
    function Heads:init() for name, n in pairs(sizes) do self[name] = nn.Dense(n, 16) end end
    function Heads:construct(x)
      local sum = x
      for name in pairs(sizes) do sum = sum + ops.tanh(self[name](x)) / 8 end
      return sum
    end
    self.drop = Heads())";
  const std::vector<double> one = MeanLosses(1, t);
  for (int ranks : {2, 3}) ExpectFollows(MeanLosses(ranks, t), one, 1e-5);
}

// Each row meets the random numbers that it would meet in the whole batch.
TEST(DataParallel, FollowsOneRankWithDropout) {
  Training t;
  t.net = "self.drop = nn.Dropout {p = 0.3}";
  const std::vector<double> one = MeanLosses(1, t);
  for (int ranks : {2, 3}) ExpectFollows(MeanLosses(ranks, t), one, 1e-5);
}

TEST(DataParallel, FollowsOneRankWithDropoutOfRowsAndChannels) {
  for (const char* drop : {"nn.DropPath {drop_prob = 0.3}", "nn.Dropout1d {p = 0.3}"}) {
    Training t;
    t.net = absl::StrCat("local drop = ", drop,
                         " self.drop = function(h) return ops.reshape(drop(ops.reshape(h, "
                         "{h.shape[1], h.shape[2], 1})), h.shape) end");
    const std::vector<double> one = MeanLosses(1, t);
    for (int ranks : {2, 3}) ExpectFollows(MeanLosses(ranks, t), one, 1e-5);
  }
}

// As that of a generator, or of queries that are learned.
TEST(DataParallel, FollowsOneRankWithDropoutOfWhatIsNotOfTheBatch) {
  for (const char* made :
       {"self.g(ms.randn {h.shape[1], 4})", "ops.broadcast_to(self.q, h.shape)", "ms.ones(h.shape) * self.q"}) {
    Training t;
    t.net = absl::StrCat("self.g, self.d = nn.Dense(4, 16), nn.Dropout {p = 0.5} self:parameter('q', {16}, 'ones') ",
                         "self.drop = function(h) return h + self.d(", made, ") end");
    const std::vector<double> one = MeanLosses(1, t);
    for (int ranks : {2, 3}) ExpectFollows(MeanLosses(ranks, t), one, 1e-5);
  }
}

// Without gradients_mean they are summed: the steps are as large as with `ranks` times the rate.
TEST(DataParallel, SumsWithoutGradientsMean) {
  Training sum, scaled;
  sum.context = "gradients_mean = false";
  sum.optimizer = "nn.SGD {learning_rate = 0.01}";
  scaled.optimizer = "nn.SGD {learning_rate = 0.02}";
  ExpectFollows(MeanLosses(2, sum), MeanLosses(1, scaled), 1e-5);
}

TEST(DataParallel, ParametersStayEqualAndFrozenOnesStay) {
  Training t;
  t.net = "self.fc1.weight.requires_grad = false";
  t.before = "net:get_parameters() local before = tostring(net.fc1.weight.value)";
  t.result = "return tostring(net.fc1.weight.value) == before, net.fc2.weight.value, net.fc2.bias.value";
  const auto values = Train(4, t);
  EXPECT_THAT(values[0], HasSubstr("true [["));
  EXPECT_THAT(values, Each(values[0]));
}

TEST(DataParallel, BroadcastMakesParametersRankZeros) {
  Training t;
  t.net =
      "self.fixed = self:state('fixed', {3}, 'normal') "
      "function self:construct(x) return self.fc2(ops.tanh(self.fc1(x))) + self.fixed end";
  t.before = "for _, p in ipairs(net:get_parameters()) do p.value = p.value + rank end";
  t.result = "return net.fc1.weight.value, net.fixed.value";
  EXPECT_THAT(Train(2, t), Each(HasSubstr("rank 1 begins with other values of 'fc1.weight' than rank 0")));
  t.context = "parameter_broadcast = true";
  const auto same = Train(2, t);
  EXPECT_EQ(same[0], same[1]);
}

// Where initial values are not broadcast they are compared; those that ranks have of their own may differ.
TEST(DataParallel, RanksBeginWithOneNetwork) {
  Training t;
  const char* const other =
      "rank 2 begins with other values of 'fc2.bias' than rank 0: load or assign them on all ranks";
  t.before = "if rank == 2 then net.fc2.bias.value = ms.ones {3} end";
  EXPECT_THAT(Train(3, t), Each(HasSubstr(other)));
  t.context = "enable_parallel_optimizer = true";
  EXPECT_THAT(Train(3, t), Each(HasSubstr(other)));
  t.context.clear();
  t.before = "net.fc2.bias.layerwise_parallel = true net.fc2.bias.value = ms.ones {3} * rank";
  EXPECT_EQ(Numbers(Train(3, t)[2]).size(), 50u);
  const std::string loop = R"(
    local ms = require "mslua"
    ms.set_auto_parallel_context {parallel_mode = "data_parallel", gradients_mean = true}
    local net = ms.nn.Dense(4, 2)
    if require("mslua.core").options.rank == 1 then net.weight.value = ms.ones {2, 4} end
    local cell = ms.nn.TrainOneStepCell(ms.nn.WithLossCell(net, ms.nn.MSELoss()), ms.nn.SGD {learning_rate = 0.5})
    cell(ms.ones {2, 4}, ms.ones {2, 2}))";
  EXPECT_THAT(RunSessions(2, loop), Each(HasSubstr("rank 1 begins with other values of 'weight' than rank 0")));
}

// A list that differs at one step; a function of the rank's own loss, which all have from rank 0.
TEST(DataParallel, RanksHaveOneLearningRate) {
  Training t;
  t.optimizer =
      "nn.SGD {learning_rate = (function() local l = {} for i = 1, 60 do l[i] = 0.1 end "
      "if rank == 1 then l[5] = 0.5 end return l end)()}";
  EXPECT_THAT(Train(2, t), Each(HasSubstr("learning rates of steps 1 to 10000 with the checksum")));
  t.optimizer = "nn.SGD {learning_rate = function() return losses[#losses] and 0.1 * losses[#losses] or 0.1 end}";
  t.result = "return net.fc1.weight.value, net.fc2.bias.value";
  const auto trained = Train(2, t);
  EXPECT_EQ(trained[0], trained[1]);
  const std::string loop = R"(
    local ms = require "mslua"
    local rank = require("mslua.core").options.rank
    ms.set_auto_parallel_context {parallel_mode = "data_parallel", gradients_mean = true}
    local net, last, list = ms.nn.Dense(4, 2), 0.1 * (rank + 1), {0.1, 0.1, 0.1 + rank}
    local cell = ms.nn.TrainOneStepCell(ms.nn.WithLossCell(net, ms.nn.MSELoss()), ms.nn.SGD {learning_rate = $RATE})
    for step = 1, 3 do last = 0.1 * cell(ms.randn({2, 4}, "float32", "x" .. rank), ms.ones {2, 2}):item() end
    return net.weight.value)";
  const auto looped = RunSessions(2, absl::StrReplaceAll(loop, {{"$RATE", "function() return last end"}}));
  EXPECT_EQ(looped[0], looped[1]);
  EXPECT_THAT(looped[0], HasSubstr("[["));
  EXPECT_THAT(RunSessions(2, absl::StrReplaceAll(loop, {{"$RATE", "list"}})),
              Each(HasSubstr("rank 1 has learning rates other than rank 0's")));
}

// MindSpore's loop: gradients of each rank, the reducer, the optimizer.
TEST(DataParallel, DistributedGradReducerFollowsOneRank) {
  const std::string code = R"(
    local ms = require "mslua"
    local rank, ranks = require("mslua.core").options.rank, require("mslua.core").options.ranks
    ms.set_auto_parallel_context {parallel_mode = "data_parallel", gradients_mean = true}
    local net = ms.nn.Dense(4, 2)
    local weights = net:trainable_params()
    local opt, reducer = ms.nn.Momentum(weights, 0.1, 0.9), ms.nn.DistributedGradReducer(weights)
    local f = ms.value_and_grad(function(a, b) return ms.nn.MSELoss()(net(a), b) end, {weights = weights})
    local x, y = ms.randn({8, 4}, "float32", "x"), ms.randn({8, 2}, "float32", "y")
    local n = 8 / ranks
    for i = 1, 5 do
      local _, gradients = f(x[{{rank * n + 1, rank * n + n}}], y[{{rank * n + 1, rank * n + n}}])
      opt(reducer(gradients))
    end
    local w = net.weight.value
    local sums = ms.nn.DistributedGradReducer(weights, false)({ms.ones {2}, ms.ones {3}})
    local means = ms.nn.DistributedGradReducer(weights, true, 8)({ms.ones {2}, ms.ones {3}})
    assert(sums[2][3] == ranks and means[1][1] == ranks / 8)
    return ("%.5f %.5f"):format(w:sum():item(), (w * w):sum():item()))";
  const auto one = RunSessions(1, code);
  EXPECT_EQ(Numbers(one[0]).size(), 2u) << one[0];
  EXPECT_THAT(RunSessions(2, code), Each(one[0]));
  EXPECT_THAT(RunSessions(4, code), Each(one[0]));
  EXPECT_THAT(RunSessions(2,
                          "local ms = require 'mslua' local net = ms.nn.Dense(4, 2) "
                          "ms.nn.DistributedGradReducer(net:trainable_params())({ms.ones {2}})"),
              Each(HasSubstr("expected a list of 2 gradients, one for each of parameters, got 1")));
}

// Ranks of several seeds would read some samples twice and others never.
TEST(DataParallel, RanksShuffleByOneSeed) {
  Training t;
  t.before = "ms.set_seed(7 + rank)";
  t.context = "parameter_broadcast = true";
  EXPECT_THAT(Train(2, t), Each(HasSubstr("rank 1 has the seed 8, rank 0 has 7: give all ranks one seed, or "
                                          "num_shards and shard_id")));
}

// Keys of the modes that shard operators are refused, not ignored.
TEST(DataParallel, RanksReadTheirRowsOnly) {
  Training t;
  t.context = "full_batch = true";
  EXPECT_THAT(Train(2, t), Each(HasSubstr("dataset_strategy = \"full_batch\" needs parallel_mode semi_auto_parallel")));
  t.context = "grad_accumulation_step = 4";
  EXPECT_THAT(Train(2, t), Each(HasSubstr("grad_accumulation_step = 4: give it as accumulate_steps")));
}

// Updates of slices take more nodes on some ranks: the steps behind them are the same all the same.
TEST(DataParallel, StepsWithUnevenSlices) {
  const std::string text = R"(
    local ms = require "mslua"
    local core, nn = require "mslua.core", ms.nn
    core.options.fast_dev_run = 1
    ms.set_auto_parallel_context {parallel_mode = "data_parallel", gradients_mean = true, $CONTEXT}
    local Net = nn.Cell:extend "Net"
    function Net:init() self.a, self.c = nn.Dense(15, 15), nn.Dense(15, 15) end
    function Net:construct(x) return self.a(x) end
    local net, losses = Net(), {}
    local function loss(net, x) return ms.ops.square(net.c(net(x))):mean() end
    local model = ms.Model(net, {steps = {
      {name = "c", loss = loss, params = "^c%.", optimizer = nn.Adam {learning_rate = 0.01}},
      {name = "a", loss = loss, params = "^a%.", optimizer = nn.Momentum {learning_rate = 0.01, momentum = 0.9}}}})
    local Recorder = ms.Callback:extend "Recorder"
    function Recorder:on_train_step_end(state) losses[#losses + 1] = ("%.6g"):format(state.loss) end
    model:train(2, ms.dataset.NumpySlicesDataset({ms.rand({16, 15}, "float32", "x")}, {"x"}):batch(4),
      {callbacks = {Recorder()}})
    return table.concat(losses, " "))";
  const auto whole = RunSessions(2, absl::StrReplaceAll(text, {{"$CONTEXT", ""}}));
  EXPECT_EQ(Numbers(whole[0]).size(), 4u) << whole[0];
  const std::string slices =
      "enable_parallel_optimizer = true, parallel_optimizer_config = {parallel_optimizer_threshold = 0}";
  EXPECT_EQ(RunSessions(2, absl::StrReplaceAll(text, {{"$CONTEXT", slices}})), whole);
}

// A training in global view leaves nothing behind for those that follow in the same program.
TEST(DataParallel, FollowsATrainingInGlobalView) {
  Training t;
  t.net =
      "self.fc1.weight.layerwise_parallel = true self.norm = nn.BatchNorm1d(16) "
      "function self:construct(x) return self.fc2(ops.tanh(self.norm(self.fc1(x)))) end";
  t.context = "parallel_mode = 'hybrid_parallel'";
  t.model = ", metrics = {'loss'}";
  t.result = R"(
    local eval = ms.dataset.NumpySlicesDataset({x, y}, {column_names = {"x", "y"}}):batch(10, {drop_remainder = false})
    return table.concat(losses, " "), net.fc1.weight.value, ("%.9g"):format(model:eval(eval).loss))";
  const auto want = Train(2, t);
  EXPECT_NE(want[0], want[1]);
  t.before = R"(
    ms.set_auto_parallel_context {parallel_mode = "semi_auto_parallel"}
    local other = nn.Dense(6, 3)
    ms.Model(other, {loss_fn = nn.MSELoss(), optimizer = nn.SGD {learning_rate = 0.1}}):train(1, ds)
    ms.reset_auto_parallel_context()
    ms.set_auto_parallel_context {parallel_mode = "hybrid_parallel", gradients_mean = true})";
  EXPECT_EQ(Train(2, t), want);
}

// A dataset sharded by hand is left alone; F feeds of b are one feed of F * b otherwise.
TEST(DataParallel, WhoseBatch) {
  const std::string rows = R"(
    local ms = require "mslua"
    ms.set_auto_parallel_context {parallel_mode = "data_parallel"}
    local out = {}
    local ds = ms.dataset.NumpySlicesDataset({ms.arange(8)}, {column_names = {"x"}, $SHARD}):batch(2)
    for x in ds:create_tuple_iterator() do out[#out + 1] = tostring(x) end
    return table.concat(out, " "))";
  EXPECT_THAT(RunSessions(2, absl::StrReplaceAll(rows, {{"$SHARD", ""}})),
              ElementsAre("[0, 1] [4, 5]", "[2, 3] [6, 7]"));
  EXPECT_THAT(RunSessions(2, absl::StrReplaceAll(rows, {{"$SHARD", "num_shards = 4, shard_id = 1"}})), Each("[1, 5]"));
}

// Evaluation counts every sample once, tail included, whatever the ranks.
TEST(DataParallel, EvaluationDependsOnNoRanks) {
  Training t;
  t.result = R"(
    local eval = ms.dataset.NumpySlicesDataset({x, y}, {column_names = {"x", "y"}}):take(43)
      :batch(10, {drop_remainder = false})
    return ("%.6f"):format(model:eval(eval).loss))";
  t.model = ", metrics = {'loss'}";
  const auto one = Train(1, t);
  EXPECT_GT(Numbers(one[0])[0], 0);
  for (int ranks : {2, 3}) EXPECT_THAT(Train(ranks, t), Each(one[0]));
}

// What the ranks get from one step of SGD at rate 1 on $NET: how far each parameter moved, which is its gradient as the
// update saw it, without clipping and with clip_norm = 0.1. `shared` and `own` are the parameters' elements.
struct Moved {
  std::vector<double> shared, own;
};
std::vector<Moved> MovedBy(int ranks, Training t, bool clips) {
  t.net += R"(
    self.own = self:parameter("own", {24}, "ones", {layerwise_parallel = true})
    self.mine = self:parameter("mine", {16, 16}, {"normal", sigma = 0.3}, {layerwise_parallel = true})
    function self:construct(x)
      local h = ops.matmul(ops.tanh(self.fc1(x)), self.mine)
      return self.fc2(h * ops.strided_slice(self.own, {1}, {17}))
    end)";
  t.optimizer = "nn.SGD {learning_rate = 1}";
  t.max_steps = 1;
  if (clips) t.train += ", clip_norm = 0.1";
  t.before += R"(
    local ask = core.build_train
    core.build_train = function(spec)
      if spec.aggregate and spec.aggregate.shards then spec.aggregate.shards.threshold = 0 end
      return ask(spec)
    end
    net:get_parameters()
    local first = {}
    for _, p in ipairs(net:get_parameters()) do first[p.name] = p.value end)";
  t.result = R"(
    local words = {}
    for _, own in ipairs {false, true} do
      for _, p in ipairs(net:get_parameters()) do
        if p.layerwise_parallel == own then
          for _, v in ipairs(ops.reshape(first[p.name] - p.value, {-1}):totable()) do
            words[#words + 1] = ("%.9g"):format(v)
          end
        end
      end
    end
    return table.concat(words, ' '))";
  std::vector<Moved> moved;
  for (const std::string& text : Train(ranks, t)) {
    const std::vector<double> all = Numbers(text);
    EXPECT_EQ(all.size(), 6 * 16 + 16 + 16 * 3 + 3 + 24 + 16 * 16u) << text;
    if (all.size() < 280) return {};
    moved.push_back({{all.begin(), all.end() - 280}, {all.end() - 280, all.end()}});
  }
  return moved;
}

// One norm for all ranks, of every element once: combined gradients, in slices or whole, and each rank's own.
TEST(DataParallel, ClipNormCountsOwnParametersOfAllRanks) {
  const std::string slices = "enable_parallel_optimizer = true";
  struct Case {
    int ranks;
    std::string context;
  };
  for (const Case& c : {Case{2, ""}, Case{3, "gradients_mean = false"}, Case{2, slices}, Case{3, slices},
                        Case{4, slices + ", optimizer_weight_shard_size = 2"}}) {
    for (const char* train : {"", ", accumulate_steps = 2"}) {
      if (c.ranks == 3 && *train != 0) continue;
      SCOPED_TRACE(absl::StrCat(c.ranks, " ranks ", c.context, train));
      Training t;
      t.context = absl::StrCat("parallel_mode = 'hybrid_parallel', ", c.context);
      t.train = train;
      const std::vector<Moved> free = MovedBy(c.ranks, t, false), clipped = MovedBy(c.ranks, t, true);
      ASSERT_EQ(free.size(), static_cast<size_t>(c.ranks));
      ASSERT_EQ(clipped.size(), free.size());
      const auto squares = [](const std::vector<double>& v) {
        return std::inner_product(v.begin(), v.end(), v.begin(), 0.0);
      };
      double sum = squares(free[0].shared);
      for (const Moved& m : free) sum += squares(m.own);
      const double factor = 0.1 / std::sqrt(sum);
      ASSERT_LT(factor, 0.9);
      EXPECT_NE(free[0].own, free[1].own);
      for (size_t r = 0; r < free.size(); ++r) {
        EXPECT_EQ(clipped[r].shared, clipped[0].shared) << "rank " << r;
        for (const auto part : {&Moved::shared, &Moved::own}) {
          for (size_t i = 0; i < (free[r].*part).size(); ++i)
            ASSERT_NEAR((clipped[r].*part)[i], factor * (free[r].*part)[i], 1e-6) << "rank " << r << ", element " << i;
        }
      }
    }
  }
}

// Shared parameters are the same bits on all ranks, whatever scales or clips the gradients.
TEST(DataParallel, SharedParametersStayEqualBesideOwnOnes) {
  struct Case {
    const char *optimizer, *train, *model, *context;
  };
  for (const Case& c :
       {Case{"nn.Lamb {learning_rate = 0.02}", ", clip_norm = 0.05", "", ""},
        Case{"nn.Adam {learning_rate = 0.01}", ", clip_norm = 0.05, accumulate_steps = 2",
             ", loss_scale_manager = ms.DynamicLossScaleManager(2^120, 2, 5)", ""},
        Case{"nn.Lamb {learning_rate = 0.02}", ", clip_norm = 0.05",
             ", loss_scale_manager = ms.DynamicLossScaleManager(2^120, 2, 5)", ", enable_parallel_optimizer = true"},
        Case{"nn.Momentum {learning_rate = 0.1, momentum = 0.9}", ", clip_value = 0.01", "",
             ", enable_parallel_optimizer = true, optimizer_weight_shard_size = 2"}}) {
    SCOPED_TRACE(absl::StrCat(c.optimizer, c.train, c.model, c.context));
    Training t;
    t.net = R"(self.own = self:parameter("own", {16}, "ones", {layerwise_parallel = true})
      function self:construct(x) return self.fc2(ops.tanh(self.fc1(x)) * self.own) end)";
    t.optimizer = c.optimizer;
    t.train = c.train;
    t.model = c.model;
    t.context = absl::StrCat("parallel_mode = 'hybrid_parallel'", c.context);
    t.max_steps = 8;
    t.before =
        "local ask = core.build_train core.build_train = function(spec) "
        "if spec.aggregate.shards then spec.aggregate.shards.threshold = 0 end return ask(spec) end";
    t.result = R"(
      local words = {}
      for _, p in ipairs {net.fc1.weight, net.fc1.bias, net.fc2.weight, net.fc2.bias} do
        for _, v in ipairs(ops.reshape(p.value, {-1}):totable()) do words[#words + 1] = ("%.9g"):format(v) end
      end
      return table.concat(words, ' '))";
    const auto values = Train(4, t);
    EXPECT_EQ(Numbers(values[0]).size(), 163u) << values[0];
    EXPECT_THAT(values, Each(values[0]));
  }
}

// Optimizer state in slices: the same losses whatever the optimizer, also where slices are uneven (fc2's bias has 3
// elements) and where norms are of whole parameters.
TEST(ParallelOptimizer, FollowsOneRank) {
  for (const char* optimizer : {"nn.SGD {learning_rate = 0.1}", "nn.Momentum {learning_rate = 0.1, momentum = 0.9}",
                                "nn.Adam {learning_rate = 0.01}", "nn.Lamb {learning_rate = 0.02}",
                                "nn.AdamWeightDecay {learning_rate = 0.01, weight_decay = 0.1}",
                                "nn.AdamW {learning_rate = 0.01, weight_decay = 0.1}",
                                "nn.RMSProp {learning_rate = 0.001, centered = true, weight_decay = 0.1}",
                                "nn.Adagrad {learning_rate = 0.05}", "nn.FTRL {learning_rate = 0.05, l1 = 0.001}",
                                "nn.LARS(nn.Momentum {learning_rate = 1, momentum = 0.9, weight_decay = 0.01}, "
                                "{coefficient = 0.05, lars_filter = ''})"}) {
    SCOPED_TRACE(optimizer);
    Training whole, sharded;
    whole.optimizer = sharded.optimizer = optimizer;
    whole.train = sharded.train = ", clip_norm = 0.2, accumulate_steps = 2";
    sharded.context =
        "enable_parallel_optimizer = true, parallel_optimizer_config = {parallel_optimizer_threshold = 1}";
    // 1 KB: no parameter here is as large; the trainer is asked for 0 in its own unit.
    sharded.before =
        "local ask = core.build_train "
        "core.build_train = function(spec) if spec.aggregate then spec.aggregate.shards.threshold = 0 end "
        "return ask(spec) end";
    sharded.result = R"(local size = 0
      for _, e in ipairs(core.store()) do
        if e.kind == "state" then size = size + e.shape[1] * (e.shape[2] or 1) end
      end
      return table.concat(losses, " "), size)";
    const std::vector<double> want = MeanLosses(1, whole);
    for (int ranks : {2, 4}) {
      std::vector<double> mean(50, 0);
      for (const std::string& text : Train(ranks, sharded)) {
        std::vector<double> mine = Numbers(text);
        ASSERT_EQ(mine.size(), 51u) << text;
        // 163 elements in 4 parameters; a slice of each.
        const double states = std::string(optimizer).find("SGD") != std::string::npos        ? 0
                              : std::string(optimizer).find("Momentum") != std::string::npos ? 1
                              : std::string(optimizer).find("Adagrad") != std::string::npos  ? 1
                              : std::string(optimizer).find("RMSProp") != std::string::npos  ? 3
                                                                                             : 2;
        EXPECT_LE(mine.back(), states * (163.0 / ranks + 4));
        for (size_t i = 0; i < 50; ++i) mean[i] += mine[i] / ranks;
      }
      ExpectFollows(mean, want, 2e-5);
    }
    sharded.context +=
        ", gradient_fp32_sync = false, comm_fusion = {reducescatter = {mode = 'auto'}, allgather = {mode = 'size', "
        "config = 1}}";
    sharded.before +=
        " local accumulate = core.build_train core.build_train = function(spec) "
        "if spec.aggregate then spec.aggregate.shards.accumulate = false end return accumulate(spec) end";
    sharded.result = "return table.concat(losses, ' ')";
    ExpectFollows(MeanLosses(2, sharded), want, 2e-5);
  }
}

// Adafactor keeps means of whole rows and columns: of slices there are none. Parameters of one dimension have slices,
// and matrices stay whole with parallel_optimizer = false.
TEST(ParallelOptimizer, AdafactorNeedsWholeMatrices) {
  Training t;
  t.optimizer = "nn.Adafactor {learning_rate = 0.01}";
  const std::vector<double> want = MeanLosses(1, t);
  t.context = "enable_parallel_optimizer = true";
  t.before =
      "local ask = core.build_train "
      "core.build_train = function(spec) if spec.aggregate then spec.aggregate.shards.threshold = 0 end "
      "return ask(spec) end";
  for (const std::string& text : Train(2, t)) {
    EXPECT_THAT(text, HasSubstr("nn.Adafactor: its update needs the whole of parameter"));
    EXPECT_THAT(text,
                HasSubstr("leave enable_parallel_optimizer out, or give the parameter parallel_optimizer = false"));
  }
  t.before =
      "local ask = core.build_train core.build_train = function(spec) if spec.aggregate then "
      "spec.aggregate.shards.threshold = 0 for _, p in ipairs(spec.parameters) do "
      "if #p.shape > 1 then p.parallel_optimizer = false end end end return ask(spec) end";
  ExpectFollows(MeanLosses(2, t), want, 2e-5);
}

class Resume : public ::testing::Test {
 protected:
  Resume() {
    char name[] = "/tmp/mslua-ranks-XXXXXX";
    folder_ = mkdtemp(name);
  }
  ~Resume() override { std::filesystem::remove_all(folder_); }

  // Trains 13 of the 50 steps and saves, or resumes there and trains to the end; returns the ranks' losses of the last
  // steps.
  std::vector<std::string> Part(int ranks, bool second, Training t) {
    t.before += absl::StrCat(" core.options.fast_dev_run = nil core.options.out = '", folder_, "'",
                             second ? " core.options.resume = 'last'" : "");
    t.callbacks = absl::StrCat(", ms.ModelCheckpoint {prefix = 'net', config = ms.CheckpointConfig {",
                               "save_checkpoint_steps = ", save_steps_, "}}");
    if (!second) t.max_steps = 13;
    return Train(ranks, t);
  }
  std::string folder_;
  int save_steps_ = 100;
};

// Whatever ranks saved, whatever ranks resume, with sharded state or without.
TEST_F(Resume, OnAnyNumberOfRanks) {
  Training whole, sharded;
  whole.optimizer = sharded.optimizer = "nn.Adam {learning_rate = 0.01}";
  sharded.context = "enable_parallel_optimizer = true";
  sharded.before =
      "local ask = core.build_train "
      "core.build_train = function(spec) if spec.aggregate then spec.aggregate.shards.threshold = 0 end "
      "return ask(spec) end";
  Training pairs = sharded;  // two groups of two ranks, each with the whole state
  pairs.context += ", optimizer_weight_shard_size = 2";
  const std::vector<double> want = MeanLosses(1, whole);
  struct Case {
    int before, after;
    const Training *first, *second;
  };
  for (const Case& c : {Case{2, 2, &sharded, &sharded}, Case{3, 2, &sharded, &sharded}, Case{2, 1, &sharded, &whole},
                        Case{1, 4, &whole, &sharded}, Case{2, 4, &whole, &whole}, Case{4, 2, &pairs, &sharded},
                        Case{2, 4, &sharded, &pairs}}) {
    SCOPED_TRACE(absl::StrCat(c.before, " then ", c.after));
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) std::filesystem::remove_all(entry.path());
    for (const std::string& text : Part(c.before, false, *c.first)) EXPECT_EQ(Numbers(text).size(), 13u) << text;
    std::vector<double> mean(37, 0);
    for (const std::string& text : Part(c.after, true, *c.second)) {
      const std::vector<double> mine = Numbers(text);
      ASSERT_EQ(mine.size(), 37u) << text;
      for (size_t i = 0; i < 37; ++i) mean[i] += mine[i] / c.after;
    }
    ExpectFollows(mean, std::vector<double>(want.begin() + 13, want.end()), 2e-5);
  }
}

// 48 samples: 3 ranks make one step of 30 an epoch, 2 ranks two steps of 20. The 13 steps of 3 ranks are 13 epochs,
// those of 2 ranks six and a half. The checkpoint is that of step 13: its epoch's end is still to come.
TEST_F(Resume, AnEpochWhoseStepsAreAllMadeIsOver) {
  save_steps_ = 13;
  Training t;
  t.before =
      "ds = ms.dataset.NumpySlicesDataset({x, y}, {column_names = {'x', 'y'}}):shuffle(48)"
      ":batch(10, {drop_remainder = true})";
  Part(3, false, t);
  for (const std::string& text : Part(2, true, t)) EXPECT_EQ(Numbers(text).size(), 12 * 2u) << text;
  for (const auto& entry : std::filesystem::directory_iterator(folder_)) std::filesystem::remove_all(entry.path());
  Part(2, false, t);
  for (const std::string& text : Part(3, true, t)) EXPECT_EQ(Numbers(text).size(), 19u) << text;
}

// layerwise_parallel parameters are a rank's own, in training and in checkpoints.
TEST_F(Resume, OwnParametersComeBackToTheirRank) {
  Training t;
  t.net = "self.fc1.weight.layerwise_parallel = true";
  t.context = "parallel_mode = 'hybrid_parallel'";
  t.result = "return table.concat(losses, ' '), net.fc1.weight.value, net.fc2.weight.value";
  const auto undisturbed = Train(2, t);
  EXPECT_NE(undisturbed[0], undisturbed[1]);
  t.result = "return net.fc1.weight.value, net.fc2.weight.value";
  const auto want = Train(2, t);
  const auto saved = Part(2, false, t);
  Training loads = t;
  loads.result = absl::StrCat("for _, p in ipairs(net:get_parameters()) do p.value = ms.zeros(p.shape, p.dtype) end ",
                              "ms.load_checkpoint('", folder_, "', net) ", t.result);
  loads.max_steps = 1;
  loads.callbacks = "";
  EXPECT_EQ(Train(2, loads), saved);
  for (int ranks : {1, 3}) {
    EXPECT_THAT(
        Train(ranks, loads),
        Each(HasSubstr(absl::StrCat("values of 2 ranks of their own of fc1.weight (layerwise_parallel): expected 2 "
                                    "ranks that train data parallel with them layerwise_parallel, got ",
                                    ranks))));
  }
  Training partly = loads;
  partly.result = absl::StrReplaceAll(loads.result, {{"', net)", "', net, false)"}});
  EXPECT_EQ(Train(1, partly)[0], saved[0]);
  Training alike = loads;
  alike.net = "";
  EXPECT_THAT(Train(2, alike), Each(HasSubstr("values of 2 ranks of their own of fc1.weight")));
  EXPECT_EQ(Part(2, true, t), want);
  const auto more = Part(3, true, t);
  EXPECT_THAT(more[2], HasSubstr("was saved by 2 rank(s): it has no value of rank 2's own"));
}

// Fewer ranks, and ranks that keep them alike, would lose the values of some.
TEST_F(Resume, OwnParametersAreNotLost) {
  Training t;
  t.net = "self.fc1.weight.layerwise_parallel = true";
  t.context = "parallel_mode = 'hybrid_parallel'";
  t.optimizer = "nn.Momentum {learning_rate = 0.1, momentum = 0.9}";
  for (const std::string& text : Part(3, false, t)) EXPECT_EQ(Numbers(text).size(), 13u) << text;
  const std::string want =
      "has values of 3 ranks of their own of fc1.weight, moments.fc1.weight (layerwise_parallel): expected 3 ranks "
      "that train data parallel with them layerwise_parallel, got ";
  EXPECT_THAT(Part(2, true, t), Each(HasSubstr(want + "2 ranks: start 3 ranks")));
  EXPECT_THAT(Part(1, true, t), Each(HasSubstr(want + "1 rank: start 3 ranks")));
  Training alike = t;
  alike.net = "";
  EXPECT_THAT(Part(3, true, alike), Each(HasSubstr(want + "3 ranks, alike on all of which they would be")));
  Training sharded = t;
  sharded.context = "parallel_mode = 'semi_auto_parallel'";
  EXPECT_THAT(Part(3, true, sharded), Each(HasSubstr(want + "3 ranks, alike")));
}

// Batch normalisation of each rank's batch shifts its sums by the rank's running mean: ranks that resume need their
// own. A save in between changes nothing.
TEST_F(Resume, RunningStatisticsComeBackToTheirRank) {
  struct Case {
    const char *context, *callbacks;
  };
  const char* const kSave =
      ", ms.ModelCheckpoint {prefix = 'net', config = ms.CheckpointConfig {save_checkpoint_steps = 5}}";
  for (const Case& c :
       {Case{"parameter_broadcast = true", kSave}, Case{"enable_parallel_optimizer = true", kSave},
        Case{"",
             ", rank == 0 and ms.ModelCheckpoint {prefix = 'net', config = ms.CheckpointConfig "
             "{save_checkpoint_steps = 5, async_save = false}} or nil"},
        Case{"",
             ", ms.ModelCheckpoint {prefix = 'net', directory = core.options.out .. '/of_' .. rank, config = "
             "ms.CheckpointConfig {save_checkpoint_seconds = 100, save_checkpoint_steps = 0}}"}}) {
    for (int ranks : {2, 3}) {
      if (ranks == 3 && c.callbacks != kSave) continue;
      SCOPED_TRACE(absl::StrCat(ranks, " ranks, ", c.context, c.callbacks));
      for (const auto& entry : std::filesystem::directory_iterator(folder_)) std::filesystem::remove_all(entry.path());
      Training t;
      t.context = c.context;
      t.net = R"(self.norm = nn.BatchNorm1d(16)
        function self:construct(x) return self.fc2(ops.tanh(self.norm(self.fc1(x)))) end)";
      t.result = R"(
        for _, v in ipairs(net.norm.moving_mean.value:totable()) do losses[#losses + 1] = ("%.9g"):format(v) end
        return table.concat(losses, ' '))";
      t.max_steps = 20;
      const auto want = Train(ranks, t);
      std::vector<std::vector<double>> numbers;
      for (const std::string& text : want) numbers.push_back(Numbers(text));
      ASSERT_EQ(numbers[0].size(), 36u) << want[0];
      EXPECT_NE(std::vector<double>(numbers[0].begin() + 20, numbers[0].end()),
                std::vector<double>(numbers[1].begin() + 20, numbers[1].end()));
      t.callbacks = c.callbacks;
      t.before = absl::StrCat("core.options.fast_dev_run = nil core.options.out = '", folder_, "'");
      t.max_steps = 13;
      for (const std::string& text : Train(ranks, t)) ASSERT_EQ(Numbers(text).size(), 29u) << text;
      t.max_steps = 20;
      t.before += " core.options.resume = 'last'";
      const auto got = Train(ranks, t);
      for (int r = 0; r < ranks; ++r) {
        EXPECT_EQ(Numbers(got[r]), std::vector<double>(numbers[r].begin() + 13, numbers[r].end())) << "rank " << r;
      }
    }
  }
}

// Fewer ranks take the statistics of theirs, new ranks those of rank 0.
TEST_F(Resume, RunningStatisticsOnAnotherNumberOfRanks) {
  Training t;
  t.net = R"(self.norm = nn.BatchNorm1d(16)
    function self:construct(x) return self.fc2(ops.tanh(self.norm(self.fc1(x)))) end)";
  t.result = "return net.norm.moving_mean.value";
  Part(3, false, t);
  const auto load = [&](int ranks) {
    Training next = t;
    next.max_steps = 13;  // they have been made
    next.callbacks = "";
    next.before = absl::StrCat("core.options.fast_dev_run = nil core.options.resume = '", folder_, "/ckpt'");
    return Train(ranks, next);
  };
  const auto three = load(3), two = load(2), four = load(4);
  EXPECT_NE(three[0], three[1]);
  EXPECT_EQ(two, std::vector<std::string>(three.begin(), three.begin() + 2));
  EXPECT_EQ(std::vector<std::string>(four.begin(), four.begin() + 3), three);
  EXPECT_EQ(four[3], three[0]);
  EXPECT_EQ(load(1)[0], three[0]);
}

// An evaluation is that of the checkpoint, by any number of ranks; training does not notice it.
TEST_F(Resume, AnEvaluationIsThatOfItsCheckpoint) {
  Training t;
  t.net = R"(self.norm = nn.BatchNorm1d(16)
    function self:construct(x) return self.fc2(ops.tanh(self.norm(self.fc1(x)))) end)";
  t.model = ", metrics = {'loss'}";
  t.result = R"(
    local eval = ms.dataset.NumpySlicesDataset({x, y}, {column_names = {"x", "y"}}):take(43)
      :batch(10, {drop_remainder = false})
    local before = tostring(net.norm.moving_mean.value)
    if core.options.resume then ms.load_checkpoint(core.options.resume, net) end
    local loss = ("%.5f"):format(model:eval(eval).loss)
    return loss, core.options.resume ~= nil or before == tostring(net.norm.moving_mean.value))";
  t.before = absl::StrCat("core.options.fast_dev_run = nil core.options.out = '", folder_, "'");
  t.callbacks = ", ms.ModelCheckpoint {config = ms.CheckpointConfig {save_checkpoint_steps = 10}}";
  const auto trained = Train(3, t);
  EXPECT_THAT(trained[0], HasSubstr(" true"));
  EXPECT_THAT(trained, Each(trained[0]));
  t.before = absl::StrCat("core.options.resume = '", folder_, "/ckpt'");
  t.callbacks = "";
  for (int ranks : {1, 2, 3}) EXPECT_THAT(Train(ranks, t), Each(trained[0])) << ranks << " ranks";
}

TEST_F(Resume, RanksThatSaveAtDifferentStepsAreAnError) {
  Training t;
  t.net = R"(self.norm = nn.BatchNorm1d(16)
    function self:construct(x) return self.fc2(ops.tanh(self.norm(self.fc1(x)))) end)";
  t.before = absl::StrCat("core.options.fast_dev_run = nil core.options.out = '", folder_, "'");
  t.callbacks =
      ", ms.ModelCheckpoint {directory = core.options.out .. '/of_' .. rank, config = ms.CheckpointConfig "
      "{save_checkpoint_steps = 5 + rank}}";
  EXPECT_THAT(Train(2, t), Each(HasSubstr("rank 0 saves a checkpoint every 5 steps, 0 seconds, rank 1 every 6 steps")));
}

TEST_F(Resume, ExceptionSaveNeedsWholeStates) {
  Training t;
  t.net = "self.fc1.weight.layerwise_parallel = true";
  t.context = "parallel_mode = 'hybrid_parallel'";
  t.before = absl::StrCat("core.options.fast_dev_run = nil core.options.out = '", folder_, "'");
  t.callbacks = ", ms.ModelCheckpoint {config = ms.CheckpointConfig {exception_save = true}}";
  EXPECT_THAT(Train(2, t), Each(HasSubstr("exception_save: the ranks have parts of their own")));
}

// One step at a time, by hand.
TEST(DataParallel, OneStepCell) {
  const std::string code = R"(
    local ms = require "mslua"
    local rank, ranks = require("mslua.core").options.rank, require("mslua.core").options.ranks
    ms.set_auto_parallel_context {parallel_mode = "data_parallel", gradients_mean = true}
    local net = ms.nn.Dense(4, 2)
    local cell = ms.nn.TrainOneStepCell(ms.nn.WithLossCell(net, ms.nn.MSELoss()), ms.nn.SGD {learning_rate = 0.5})
    local x, y = ms.randn({8, 4}, "float32", "x"), ms.randn({8, 2}, "float32", "y")
    local n = 8 / ranks
    for i = 1, 5 do
      cell(ms.ops.strided_slice(x, {rank * n + 1, 1}, {rank * n + n + 1, 5}),
           ms.ops.strided_slice(y, {rank * n + 1, 1}, {rank * n + n + 1, 3}))
    end
    local w = net.weight.value
    return ("%.5f %.5f"):format(w:sum():item(), (w * w):sum():item()))";
  const auto one = RunSessions(1, code);
  EXPECT_EQ(Numbers(one[0]).size(), 2u) << one[0];
  EXPECT_THAT(RunSessions(4, code), Each(one[0]));
}

// 16-bit gradients travel in f32 unless they are told not to; the update sees their own type.
TEST(DataParallel, SixteenBitGradients) {
  const std::string code = R"(
    local ms = require "mslua"
    local core = require "mslua.core"
    local parallel = require "mslua.parallel_context"
    ms.set_auto_parallel_context {parallel_mode = "data_parallel", gradient_fp32_sync = $SYNC}
    local w = ms.Parameter(ms.ones({3}, "bfloat16"), "w")
    local graph = core.build_train {
      forward = function(x) return core.functions.cast((x * w):sum(), "float32") end,
      inputs = {{name = "x", dtype = "bfloat16", shape = {3}}}, parameters = {w}, optimizer = {kind = "sgd"},
      aggregate = parallel.aggregation()}
    return graph:text():match("(%w+)%[3%] = all_reduce"))";
  EXPECT_THAT(RunSessions(2, absl::StrReplaceAll(code, {{"$SYNC", "true"}})), Each("f32"));
  EXPECT_THAT(RunSessions(2, absl::StrReplaceAll(code, {{"$SYNC", "false"}})), Each("bf16"));
}

// Those that mixed precision computes have the parameter's type in the end.
TEST(DataParallel, GradientsOfMixedPrecision) {
  const std::string code = R"(
    local ms = require "mslua"
    local core = require "mslua.core"
    local parallel = require "mslua.parallel_context"
    ms.set_auto_parallel_context {parallel_mode = "data_parallel", gradient_fp32_sync = $SYNC, $CONTEXT}
    local w = ms.Parameter(ms.ones({32, 64}), "w")
    local graph = core.build_train {
      forward = function(x) return core.functions.matmul(x, w):sum() end, amp = "bfloat16",
      inputs = {{name = "x", dtype = "float32", shape = {5, 32}}}, parameters = {w}, optimizer = {kind = "sgd"},
      aggregate = parallel.aggregation()}
    return graph:text():match("(%w+)%[[%d,]+%] = $CALL"))";
  const auto type = [&](const char* sync, const char* context, const char* call) {
    return RunSessions(2, absl::StrReplaceAll(code, {{"$SYNC", sync}, {"$CONTEXT", context}, {"$CALL", call}}));
  };
  constexpr char kShards[] =
      "enable_parallel_optimizer = true, parallel_optimizer_config = {parallel_optimizer_threshold = 1}";
  EXPECT_THAT(type("true", "", "all_reduce"), Each("f32"));
  EXPECT_THAT(type("false", "", "all_reduce"), Each("bf16"));
  EXPECT_THAT(type("true", kShards, "reduce_scatter"), Each("f32"));
  EXPECT_THAT(type("false", kShards, "reduce_scatter"), Each("bf16"));
}

TEST(DataParallel, StopsAsOne) {
  Training t;
  t.before = R"(function Recorder:on_train_step_end(state)
      losses[#losses + 1] = "x"
      if rank == 1 and #losses == 7 then state.stop() end
    end)";
  t.result = "return #losses";
  EXPECT_THAT(Train(3, t), Each("7"));
}

TEST(DataParallel, RanksWithOtherStepsThanTheirDataAllowAreNamed) {
  Training t;
  t.before = "if rank == 1 then ds = ms.dataset.NumpySlicesDataset({x, y}, {column_names = {'x', 'y'}}):batch(2) end";
  EXPECT_THAT(Train(2, t), Each(AllOf(HasSubstr("the data set of rank 1 ("), HasSubstr("is not that of rank 0"),
                                      HasSubstr("batches of x f32[2,6]"))));
  t.before = "if rank == 1 then ds = ds:repeat_(2) end";
  EXPECT_THAT(Train(2, t), Each(AllOf(HasSubstr("the data set of rank 1 ("), HasSubstr("is not that of rank 0"))));
}

TEST(DataParallel, RanksWithDifferentNetworksAreNamed) {
  Training t;
  t.net = "if rank == 2 then self.fc2.bias.requires_grad = false end";
  EXPECT_THAT(Train(3, t),
              Each(AllOf(HasSubstr("rank 2 has a training step other than rank 0's"), HasSubstr("fc2.bias"))));
  t.net = "if rank == 1 then self.drop = nn.Sigmoid() end";
  EXPECT_THAT(Train(2, t),
              Each(AllOf(HasSubstr("rank 1 has a training step other than rank 0's"), HasSubstr("sigmoid("))));
  t = Training();
  t.optimizer = "nn.Momentum {learning_rate = 0.1 + rank, momentum = 0.9}";
  EXPECT_THAT(Train(2, t),
              Each(HasSubstr("rank 0 has `learning rate of step 1 0.1`, rank 1 has `learning rate of step 1 1.1`")));
}

TEST(ParallelOptimizer, ShardsAmongThatManyRanks) {
  Training t;
  t.context = "enable_parallel_optimizer = true, optimizer_weight_shard_size = 2";
  EXPECT_THAT(Train(3, t)[0], HasSubstr("optimizer_weight_shard_size = 2 does not divide 3 ranks"));
}

TEST(ParallelOptimizer, LevelsAreOfCutPrograms) {
  Training t;
  t.context = "enable_parallel_optimizer = true, parallel_optimizer_config = {optimizer_level = 'level1'}";
  EXPECT_THAT(Train(2, t)[0], HasSubstr("optimizer_level needs parallel_mode semi_auto_parallel or auto_parallel, got "
                                        "data_parallel: leave it out"));
}

TEST(DataParallel, RefusesPipelineStages) {
  Training t;
  t.context = "pipeline_stages = 2";
  EXPECT_THAT(Train(2, t)[0], HasSubstr("pipeline_stages = 2 needs parallel_mode semi_auto_parallel or auto_parallel"));
}

}  // namespace
}  // namespace mslua
