#include "core/sharding/search/search.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <map>
#include <random>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/autodiff/gradient.h"
#include "core/graph/builder.h"
#include "core/op/marks.h"
#include "core/sharding/micro_batches.h"
#include "core/sharding/search/cost.h"
#include "gtest/gtest.h"

namespace mslua {
namespace {

// Training steps, without updates.
class Net {
 public:
  Value Data(Shape shape) { return g_.Input(absl::StrCat("x", ++inputs_), kData, {DType::kF32, std::move(shape)}); }
  Value Parameter(Shape shape) {
    parameters_.push_back(g_.Input(absl::StrCat("p", ++inputs_), kParameter, {DType::kF32, std::move(shape)}));
    return parameters_.back();
  }
  Value Matmul(Value x, Value w) { return g_.Op("matmul", {x, w}); }
  Value Dense(Value x, int64_t out) { return Matmul(x, Parameter({g_.TypeOf(x).shape[1], out})); }
  void Shard(Value v, const char* strategy) {
    mark::kUserStrategy.Set(g_.graph().nodes[v.node].attrs, std::string(strategy));
  }
  Graph Train(Value loss) {
    const auto gradients = Gradients(g_, loss, parameters_, Value(), /*mark_origin=*/true);
    EXPECT_TRUE(gradients.ok()) << gradients.status();
    g_.Output("loss", loss);
    for (Value v : *gradients) g_.Output(absl::StrCat("d", v.node), v);
    return *g_.Finish();
  }
  Graph Mse(Value y) { return Train(g_.Op("mse_loss", {y, Data(g_.TypeOf(y).shape)})); }
  GraphBuilder g_{"net"};

 private:
  int inputs_ = 0;
  std::vector<Value> parameters_;
};

// A network of few nodes, so that all choices can be tried.
Graph RandomNet(uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto pick = [&](std::initializer_list<int64_t> of) { return of.begin()[random() % of.size()]; };
  Net net;
  Value x = net.Data({pick({4, 12, 48}), pick({4, 24, 96})});
  const int layers = static_cast<int>(1 + random() % 2);
  for (int i = 0; i < layers; ++i) {
    const Value before = x;
    x = net.Dense(x, pick({6, 24, 96}));
    if (random() % 4 == 0) net.Shard(x, random() % 2 == 0 ? "((2,1),(1,1))" : "((1,1),(1,2))");
    if (random() % 2 == 0) x = net.g_.Op("relu", {x});
    if (net.g_.TypeOf(x) == net.g_.TypeOf(before)) x = Add(net.g_, x, before);
  }
  if (random() % 2 == 0) return net.Mse(x);
  return net.Train(net.g_.Op("reduce_sum", {x}));
}

// One in which a transpose lies between operators that leave one of its dimensions whole.
Graph MovingNet(uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto pick = [&](std::initializer_list<int64_t> of) { return of.begin()[random() % of.size()]; };
  Net net;
  const int64_t rows = pick({4, 12, 48}), heads = pick({4, 12}), depth = pick({8, 24});
  const Value x = net.Dense(net.Data({rows, pick({4, 24})}), heads * depth);
  const Value y = Transpose(net.g_, Reshape(net.g_, x, {rows, heads, depth}), {0, 2, 1});
  return net.Train(net.g_.Op("reduce_sum", {net.g_.Op("softmax", {y}, {{"axis", int64_t{1}}})}));
}

Cluster RandomCluster(uint64_t seed, const Mesh& mesh) {
  std::mt19937_64 random(seed);
  Cluster cluster;
  cluster.flops_per_second = random() % 2 == 0 ? 50e9 : 1e7;
  const LinkCosts::Link link{random() % 2 == 0 ? 10e-6 : 1e-7, random() % 2 == 0 ? 0.5e-9 : 5e-9};
  cluster.links.axes.assign(mesh.axes(), link);
  if (random() % 4 == 0) cluster.links.axes[0].beta *= 4;
  if (random() % 3 == 0) cluster.launch_seconds = 2e-6;
  return cluster;
}

// The networks that are tried of each kind; MSLUA_SEEDS says how many.
uint64_t Seeds() {
  uint64_t seeds = 200;
  const char* many = std::getenv("MSLUA_SEEDS");
  EXPECT_TRUE(many == nullptr || absl::SimpleAtoi(many, &seeds));
  return seeds;
}

// All choices, by recursion over the nodes; gives up branches that are already dearer than the best.
class BruteForce {
 public:
  BruteForce(const Graph& graph, const Mesh& mesh, const Cluster& cluster)
      : graph_(graph),
        resharder_(mesh, cluster.links),
        forward_(*ForwardOf(graph)),
        model_(graph, forward_, cluster, resharder_) {
    const ShardPlan plan = *Propagate(graph, resharder_, {});
    now_.resize(graph.nodes.size());
    choice_.resize(graph.nodes.size());
    for (int32_t i : forward_.nodes) {
      const Node& n = graph.nodes[i];
      std::vector<Sharding> all{plan.shardings[i]};
      if (const std::string* strategy = mark::kUserStrategy.Find(n.attrs)) {
        const Strategy s = *ParseStrategy(*strategy);
        all = Assignments(mesh, *FactorParts(mesh, graph, n, forward_.rules[i], s));
      } else if (n.op->name != "input" || n.attrs.Str("kind") == kParameter) {
        for (const Sharding& c : Candidates(mesh, forward_.rules[i])) {
          if (!(c == all[0])) all.push_back(c);
        }
      }
      std::vector<int64_t> own;
      for (const Sharding& c : all) own.push_back(model_.OfNode(i, c).picoseconds);
      own_.push_back(std::move(own));
      candidates_.push_back(std::move(all));
      std::vector<size_t> into;
      for (size_t e = 0; e < forward_.edges.size(); ++e) {
        if (forward_.edges[e].reader == i) into.push_back(e);
      }
      edges_into_.push_back(std::move(into));
    }
  }
  int64_t Run() {
    Try(0, 0);
    return best_;
  }

 private:
  void Try(size_t p, int64_t cost) {
    if (cost >= best_) return;
    if (p == forward_.nodes.size()) {
      best_ = cost;
      return;
    }
    const int32_t i = forward_.nodes[p];
    for (size_t c = 0; c < candidates_[p].size(); ++c) {
      choice_[i] = c;
      now_[i] = &candidates_[p][c];
      int64_t more = own_[p][c];
      for (const size_t e : edges_into_[p]) more += EdgeCost(e);
      Try(p + 1, cost + more);
    }
  }
  int64_t EdgeCost(size_t edge) {
    const ForwardGraph::Edge& e = forward_.edges[edge];
    const auto [known, fresh] = edges_.emplace(std::make_tuple(edge, choice_[e.value.node], choice_[e.reader]), 0);
    if (!fresh) return known->second;
    const TensorType& type = graph_.TypeOf(e.value);
    const Sharding &maker = *now_[e.value.node], &reader = *now_[e.reader];
    const int64_t there = model_.Exact(model_.ForwardMove(e, maker, reader), type)->picoseconds;
    const int64_t back = e.gradient ? model_.Exact(model_.BackwardMove(e, maker, reader), type)->picoseconds : 0;
    return known->second = model_.Joined(e, there, back, model_.Backward(e.reader, reader));
  }

  const Graph& graph_;
  Resharder resharder_;
  const ForwardGraph forward_;
  const CostModel model_;
  // By place in forward_.nodes: the choices, what each costs by itself, and the edges that the node reads.
  std::vector<std::vector<Sharding>> candidates_;
  std::vector<std::vector<int64_t>> own_;
  std::vector<std::vector<size_t>> edges_into_;
  std::vector<const Sharding*> now_;
  std::vector<size_t> choice_;
  std::map<std::tuple<size_t, size_t, size_t>, int64_t> edges_;
  int64_t best_ = std::numeric_limits<int64_t>::max();
};

int64_t Ticks(double seconds) { return std::llround(seconds * 1e12); }

// Seconds of the plan that propagation alone makes of a graph.
double Plain(const Graph& graph, const Mesh& mesh, const Cluster& cluster) {
  Resharder resharder(mesh, cluster.links);
  const auto plan = Propagate(graph, resharder, {});
  EXPECT_TRUE(plan.ok()) << plan.status();
  const auto forward = ForwardOf(graph);
  EXPECT_TRUE(forward.ok());
  const CostModel model(graph, *forward, cluster, resharder);
  return static_cast<double>(Evaluate(graph, *forward, model, plan->shardings)->total.picoseconds) * 1e-12;
}

std::string StrategyText(const Graph& graph, const Mesh& mesh, const SearchResult& result, Value v) {
  return ToString(StrategyOf(mesh, *RuleOf(graph, graph.nodes[v.node]), *result.chosen[v.node]));
}

void ExpectWhatBruteForceFinds(uint64_t seed, const Graph& graph) {
  const Mesh mesh = *Mesh::Of(std::vector<int64_t>{2, 4, 6}[seed % 3]);
  SearchOptions options;
  options.cluster = RandomCluster(seed, mesh);
  const auto found = Search(graph, mesh, options);
  ASSERT_TRUE(found.ok()) << "seed " << seed << ": " << found.status();
  EXPECT_TRUE(found->exact) << "seed " << seed;
  EXPECT_EQ(Ticks(found->seconds), BruteForce(graph, mesh, options.cluster).Run()) << "seed " << seed;
  EXPECT_EQ(found->gap, 0) << "seed " << seed;
}

// Data -> a part whose gradient a user gives -> matmul: what flows back into the part is counted.
TEST(Search, GradientsThatUsersGiveFlowBack) {
  for (const bool asked : {true, false}) {
    GraphBuilder g;
    CustomGradients custom;
    const Value x = g.Input("x", kData, {DType::kF32, {4, 8}}), w = g.Input("w", kParameter, {DType::kF32, {8, 8}});
    const Value h = g.Op("matmul", {x, w});
    CustomGradient part;
    part.name = "Part";
    part.inputs = {h};
    part.outputs = {g.Op("stop_gradient", {g.Op("sign", {h})})};
    part.gradient = [&g](absl::Span<const Value> dy) -> StatusOr<std::vector<Value>> {
      return std::vector<Value>{Mul(g, dy[0], 2)};
    };
    const Value result = part.outputs[0], loss = ReduceSum(g, g.Op("tanh", {result}), {0, 1}, false);
    custom.push_back(std::make_shared<const CustomGradient>(std::move(part)));
    const auto gradients = Gradients(g, loss, {w}, Value(), true, nullptr, asked ? &custom : nullptr);
    ASSERT_TRUE(gradients.ok()) << gradients.status();
    g.Output("d", (*gradients)[0]);
    const Graph graph = *g.Finish();
    const auto forward = ForwardOf(graph);
    ASSERT_TRUE(forward.ok());
    const auto edge = std::find_if(forward->edges.begin(), forward->edges.end(),
                                   [&](const ForwardGraph::Edge& e) { return e.value == result; });
    ASSERT_NE(edge, forward->edges.end());
    EXPECT_EQ(edge->gradient, asked);
  }
}

TEST(Search, DynamicProgrammingFindsWhatBruteForceFinds) {
  for (uint64_t seed = 0; seed < Seeds(); ++seed)
    ASSERT_NO_FATAL_FAILURE(ExpectWhatBruteForceFinds(seed, RandomNet(seed)));
}

// What is left out as needless is tried here.
TEST(Search, NoPlanIsBetterForNeedlessCuts) {
  for (uint64_t seed = 0; seed < Seeds() / 5; ++seed)
    ASSERT_NO_FATAL_FAILURE(ExpectWhatBruteForceFinds(seed, MovingNet(seed)));
}

// A reduction with cross_batch gives other numbers where it is sharded otherwise: it lies as without a search.
TEST(Search, ReductionsOfARanksOwnPartKeepTheBatch) {
  for (const bool own : {false, true}) {
    Net net;
    const Value x = net.Dense(net.Data({12, 8}), 8);
    const Value sum = net.g_.Op("reduce_sum", {x}, {{"axis", std::vector<int64_t>{0}}, {"keep_dims", true}});
    if (own) mark::kCrossBatch.Set(net.g_.graph().nodes[sum.node].attrs, std::string("sum"));
    const Graph graph = net.Mse(net.g_.Op("mul", {x, BroadcastTo(net.g_, sum, {12, 8})}));
    const Mesh mesh = *Mesh::Of(3);
    const auto found = Search(graph, mesh, {});
    ASSERT_TRUE(found.ok()) << found.status();
    const std::string strategy = StrategyText(graph, mesh, *found, sum);
    EXPECT_EQ(strategy == "((3,1))", own) << strategy;
  }
}

TEST(Search, OneDeviceHasOnePlan) {
  const Mesh mesh = *Mesh::Of(1);
  Net net;
  const Graph graph = net.Mse(net.Dense(net.g_.Op("relu", {net.Dense(net.Data({8, 16}), 32)}), 16));
  for (const SearchMode mode :
       {SearchMode::kDynamicProgramming, SearchMode::kRecursiveProgramming, SearchMode::kShardingPropagation}) {
    SearchOptions options;
    options.mode = mode;
    const auto found = Search(graph, mesh, options);
    ASSERT_TRUE(found.ok()) << Name(mode) << ": " << found.status();
    EXPECT_TRUE(found->exact) << Name(mode);
    EXPECT_EQ(found->bytes, 0) << Name(mode);
  }
}

TEST(Search, NoPlanTakesLessThanTheBound) {
  for (uint64_t seed = 0; seed < Seeds() / 8; ++seed) {
    const Graph graph = RandomNet(seed);
    const Mesh mesh = *Mesh::Of(seed % 2 == 0 ? 4 : 6);
    SearchOptions options;
    options.cluster = RandomCluster(seed, mesh);
    const double best = Search(graph, mesh, options)->seconds;
    options.mode = SearchMode::kRecursiveProgramming;
    const auto recursive = Search(graph, mesh, options);
    ASSERT_TRUE(recursive.ok()) << recursive.status();
    EXPECT_LE(recursive->bound_seconds, best);
    EXPECT_GE(recursive->seconds, best * (1 - 1e-12)) << "seed " << seed;
    EXPECT_LE(recursive->seconds, Plain(graph, mesh, options.cluster) * (1 + 1e-12)) << "seed " << seed;
    // Too small tables: seeds and sweeps.
    options.mode = SearchMode::kDynamicProgramming;
    options.max_entries = 200;
    const auto bounded = Search(graph, mesh, options);
    if (!bounded.ok()) continue;
    EXPECT_LE(bounded->bound_seconds, best);
    EXPECT_GE(bounded->seconds, best * (1 - 1e-12)) << "seed " << seed;
    EXPECT_LE(bounded->seconds, Plain(graph, mesh, options.cluster) * (1 + 1e-12)) << "seed " << seed;
  }
}

TEST(Search, IsNeverWorseThanDataParallelOrMegatron) {
  for (int64_t batch : {8, 512}) {
    for (int64_t width : {64, 1024}) {
      for (bool fast : {false, true}) {
        const Mesh mesh = *Mesh::Of(8);
        SearchOptions options;
        if (fast) options.cluster.flops_per_second = 1e15, options.cluster.bytes_per_second = 1e12;
        Net net;
        const Value h = net.g_.Op("relu", {net.Dense(net.Data({batch, width}), 4 * width)});
        const Value y = net.Dense(h, width);
        Graph graph = net.Mse(y);
        double seconds[3];
        for (int m = 0; m < 3; ++m) {
          options.mode = static_cast<SearchMode>(m);
          const auto found = Search(graph, mesh, options);
          ASSERT_TRUE(found.ok()) << found.status();
          seconds[m] = found->seconds;
        }
        const double data_parallel = Plain(graph, mesh, options.cluster);
        mark::kUserStrategy.Set(graph.nodes[y.node].attrs, std::string("((1,8),(8,1))"));
        for (Node& n : graph.nodes) {
          if (n.op->name == "matmul" && &n != &graph.nodes[y.node] && !mark::kOrigin.Has(n.attrs))
            mark::kUserStrategy.Set(n.attrs, std::string("((1,1),(1,8))"));
        }
        const double megatron = Plain(graph, mesh, options.cluster);
        EXPECT_LE(seconds[0], std::min(data_parallel, megatron) * (1 + 1e-12));
        EXPECT_LE(seconds[0], std::min(seconds[1], seconds[2]) * (1 + 1e-12));
      }
    }
  }
}

TEST(Search, PropagationBoundsTheCostsOfLargeTensors) {
  for (const int64_t rows : {int64_t{1} << 18, int64_t{1} << 19, int64_t{1} << 22}) {
    Net net;
    const Graph graph = net.Mse(net.Dense(net.g_.Op("relu", {net.Dense(net.Data({rows, 16}), 1 << 20)}), 16));
    SearchOptions options;
    options.mode = SearchMode::kShardingPropagation;
    const auto found = Search(graph, *Mesh::Of(8), options);
    ASSERT_TRUE(found.ok()) << rows << ": " << found.status();
    EXPECT_GT(found->memory_bytes, 0);
  }
}

TEST(Search, PropagationSpreadsTheStrategyOfTheQuickStart) {
  Net net;
  const Value matmul = net.Dense(net.Data({16, 32}), 16);
  net.Shard(matmul, "((2,4),(4,1))");
  const Value relu = net.g_.Op("relu", {matmul}), matmul2 = net.Dense(relu, 16);
  const Graph graph = net.Mse(matmul2);
  const Mesh mesh = *Mesh::Of(8);
  SearchOptions options;
  options.mode = SearchMode::kShardingPropagation;
  const auto found = Search(graph, mesh, options);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(StrategyText(graph, mesh, *found, matmul), "((2,4),(4,1))");
  EXPECT_EQ(StrategyText(graph, mesh, *found, relu), "((2,4))");
  EXPECT_EQ(StrategyText(graph, mesh, *found, matmul2), "((2,4),(4,1))");
}

TEST(Search, UsersStrategiesHoldInEveryMode) {
  for (int m = 0; m < 3; ++m) {
    Net net;
    const Value a = net.Dense(net.Data({16, 32}), 16), b = net.Dense(net.g_.Op("relu", {a}), 16);
    net.Shard(b, "((1,2),(2,2))");
    const Graph graph = net.Mse(b);
    const Mesh mesh = *Mesh::Of(8);
    SearchOptions options;
    options.mode = static_cast<SearchMode>(m);
    const auto found = Search(graph, mesh, options);
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_EQ(StrategyText(graph, mesh, *found, b), "((1,2),(2,2))") << Name(options.mode);
    // What was chosen is what propagation then makes a plan of.
    PropagateOptions propagate;
    propagate.chosen = found->chosen;
    Resharder resharder(mesh);
    const auto plan = Propagate(graph, resharder, propagate);
    ASSERT_TRUE(plan.ok()) << plan.status();
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      if (!found->chosen[i]) continue;
      EXPECT_TRUE(plan->shardings[i] == *found->chosen[i]) << NameOf(graph.nodes[i]);
    }
  }
}

TEST(Search, KeepsTheMemoryLimit) {
  Net net;
  const Value h = net.g_.Op("relu", {net.Dense(net.Data({8, 512}), 512)});
  const Graph graph = net.Mse(net.Dense(h, 512));
  const Mesh mesh = *Mesh::Of(8);
  SearchOptions options;
  options.cluster.flops_per_second = 1e14;
  options.cluster.bytes_per_second = 1e12;
  const auto fastest = Search(graph, mesh, options);
  ASSERT_TRUE(fastest.ok());
  options.cluster.memory_bytes = fastest->memory_bytes;
  EXPECT_EQ(Search(graph, mesh, options)->seconds, fastest->seconds);
  options.cluster.memory_bytes = fastest->memory_bytes / 2;
  ASSERT_GT(fastest->memory_bytes, options.cluster.memory_bytes);
  const auto small = Search(graph, mesh, options);
  ASSERT_TRUE(small.ok()) << small.status();
  EXPECT_LE(small->memory_bytes, options.cluster.memory_bytes);
  EXPECT_GE(small->seconds, fastest->seconds);
  EXPECT_LE(small->bound_seconds, small->seconds);
  EXPECT_GE(small->bound_seconds, fastest->seconds * (1 - 1e-9));
  options.cluster.memory_bytes = 1000;
  EXPECT_EQ(Search(graph, mesh, options).status().code(), absl::StatusCode::kResourceExhausted);
}

// Six layers that `micros` micro-batches go through, one after the other; marked as such or not.
Graph MicroBatches(int micros, bool marked) {
  Net net;
  std::vector<Value> weights;
  for (int i = 0; i < 6; ++i) weights.push_back(net.Parameter({96, 96}));
  const Value x = net.Data({48 * micros, 96});
  std::vector<MicroBlock> blocks;
  Value loss;
  for (int m = 0; m < micros; ++m) {
    const auto here = [&] { return static_cast<int32_t>(net.g_.graph().nodes.size()); };
    blocks.push_back({here(), 0, m, false});
    Value h = net.g_.Op("strided_slice", {x},
                        {{"begin", std::vector<int64_t>{48 * m, 0}}, {"end", std::vector<int64_t>{48 * (m + 1), 96}}});
    for (Value w : weights) h = Add(net.g_, net.g_.Op("relu", {net.Matmul(h, w)}), h);
    const Value one = net.g_.Op("reduce_sum", {h});
    blocks.back().end = here();
    loss = m == 0 ? one : Add(net.g_, loss, one);
  }
  Graph graph = net.Train(loss);
  if (marked) MarkMicroBatches(blocks, &graph);
  return graph;
}

// The tables of micro-batches that share their parameters are too large together, and the sharding of one is that of
// all.
TEST(Search, MicroBatchesAreAllCutAsTheFirst) {
  for (const SearchMode mode :
       {SearchMode::kDynamicProgramming, SearchMode::kRecursiveProgramming, SearchMode::kShardingPropagation}) {
    for (const int64_t ranks : {2, 4, 8}) {
      const Mesh mesh = *Mesh::Of(ranks);
      SearchOptions options;
      options.mode = mode;
      for (const int micros : {2, 4, 8}) {
        const Graph graph = MicroBatches(micros, true);
        const auto found = Search(graph, mesh, options);
        ASSERT_TRUE(found.ok()) << Name(mode) << " " << ranks << " ranks, " << micros << ": " << found.status();
        EXPECT_LT(found->largest_table, 1e5);
        std::map<std::string, int> strategies;  // of products
        for (size_t i = 0; i < graph.nodes.size(); ++i) {
          if (graph.nodes[i].op->name != "matmul" || !found->chosen[i]) continue;
          ++strategies[StrategyText(graph, mesh, *found, {static_cast<int32_t>(i), 0})];
        }
        for (const auto& [text, count] : strategies) EXPECT_EQ(count % micros, 0) << text;
      }
    }
  }
}

// A network that uses its parameters many times has tables too large for an exact search, and a plan all the same.
TEST(Search, ParametersThatManyOperatorsReadLeaveAPlan) {
  for (const SearchMode mode :
       {SearchMode::kDynamicProgramming, SearchMode::kRecursiveProgramming, SearchMode::kShardingPropagation}) {
    for (const int64_t ranks : {2, 6}) {
      const Mesh mesh = *Mesh::Of(ranks);
      const Graph graph = MicroBatches(8, false);
      SearchOptions options;
      options.mode = mode;
      options.max_entries = 1e4;
      const auto found = Search(graph, mesh, options);
      ASSERT_TRUE(found.ok()) << Name(mode) << " " << ranks << " ranks: " << found.status();
      if (mode != SearchMode::kShardingPropagation) {
        EXPECT_LE(found->seconds, Plain(graph, mesh, options.cluster));
      }
      EXPECT_LE(found->bound_seconds, found->seconds);
    }
  }
}

// Slices of the optimizer, and what is made again on the way back, are no part of the memory that a plan needs.
TEST(Search, MemoryFollowsOptimizerLevelsAndRecomputation) {
  const Mesh mesh = *Mesh::Of(4);
  const auto memory = [&](int level, int32_t region) {
    Net net;
    const Value w = net.Parameter({96, 96});
    Value h = net.Data({48, 96});
    net.g_.SetRegion(region);
    for (int i = 0; i < 3; ++i) h = net.g_.Op("relu", {net.Matmul(h, w)});
    net.g_.SetRegion(0);
    Graph graph = net.Mse(h);
    SearchOptions options;
    for (int32_t i : graph.Inputs()) {
      Node& n = graph.nodes[i];
      if (n.attrs.Str("kind") == kParameter) options.propagate.fixed.emplace(n.attrs.Str("name"), Layout(2));
    }
    if (level > 0) {
      options.propagate.optimizer_shards.emplace();
      options.propagate.optimizer_shards->sums = level >= 2;
      options.propagate.optimizer_shards->parameters = level >= 3;
    }
    const auto found = Search(graph, mesh, options);
    EXPECT_TRUE(found.ok()) << found.status();
    return found.ok() ? found->memory_bytes : 0;
  };
  const int64_t weight = 96 * 96 * 4, rows = 48 * 96 * 4;
  EXPECT_EQ(memory(1, 0), memory(0, 0));  // there is no state
  EXPECT_EQ(memory(2, 0), memory(1, 0) - weight * 3 / 4);
  EXPECT_EQ(memory(3, 0), memory(2, 0) - weight * 3 / 4);
  EXPECT_EQ(memory(0, 1), memory(0, 0) - 5 * rows);  // three products and three maps, of which the last is kept
}

TEST(Search, TheRunnerUpCostsNoLess) {
  Net net;
  const Value a = net.Dense(net.Data({16, 32}), 16);
  const Graph graph = net.Mse(a);
  const Mesh mesh = *Mesh::Of(4);
  SearchOptions options;
  const auto best = Search(graph, mesh, options);
  options.without = std::make_pair(a.node, *best->chosen[a.node]);
  const auto second = Search(graph, mesh, options);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_FALSE(*second->chosen[a.node] == *best->chosen[a.node]);
  EXPECT_GE(second->seconds, best->seconds);
}

TEST(Search, ModesHaveNames) {
  for (int m = 0; m < 3; ++m) EXPECT_EQ(*ParseSearchMode(Name(static_cast<SearchMode>(m))), static_cast<SearchMode>(m));
  EXPECT_EQ(ParseSearchMode("dynamic_programing").status().message(),
            "search_mode is 'dynamic_programing', expected dynamic_programming, recursive_programming or "
            "sharding_propagation (did you mean 'dynamic_programming'?)");
}

}  // namespace
}  // namespace mslua
