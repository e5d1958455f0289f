#include "core/sharding/partition.h"

#include <cmath>
#include <cstdlib>
#include <random>

#include "absl/strings/numbers.h"
#include "core/graph/evaluate.h"
#include "core/runtime/testing/run_ranks.h"
#include "core/sharding/testing/lockstep.h"
#include "core/sharding/testing/models.h"
#include "gtest/gtest.h"

namespace mslua {
namespace {

using testing::Net;

// Random legal shardings for about half of the forward nodes: as users' strategies where that can be said and no
// parameter is read, else as a search would choose them.
PropagateOptions RandomStrategies(Graph* graph, const Mesh& mesh, std::mt19937_64& random) {
  PropagateOptions options;
  options.chosen.resize(graph->nodes.size());
  options.follow = random() % 2 == 0;
  if (random() % 3 == 0) options.optimizer_shards.emplace();
  for (size_t i = 0; i < graph->nodes.size(); ++i) {
    Node& n = graph->nodes[i];
    if (n.inputs.empty() || n.attrs.Has("_origin") || random() % 2 == 0) continue;
    const NodeRule rule = *RuleOf(*graph, n);
    const auto candidates = Candidates(mesh, rule);
    const Sharding& s = candidates[random() % candidates.size()];
    bool parameter = false;
    for (Value v : n.inputs) parameter |= graph->nodes[v.node].op->name == "input";
    if (!parameter && random() % 2 == 0)
      n.attrs.Set(kUserStrategy, ToString(StrategyOf(mesh, rule, s)));
    else
      options.chosen[i] = s;
  }
  return options;
}

// The part of `whole` that a rank has.
std::string Slice(const Mesh& mesh, const Layout& layout, const TensorType& type, int64_t rank,
                  const std::string& whole) {
  const Shape local = layout.Local(mesh, type.shape), begin = layout.Begin(mesh, type.shape, rank),
              strides = RowMajorStrides(type.shape);
  const int64_t size = SizeOf(type.dtype), n = NumElements(local);
  std::string part;
  for (int64_t e = 0; e < n; ++e) {
    int64_t rest = e, index = 0;
    for (int64_t d = type.rank() - 1; d >= 0; --d) {
      index += (begin[d] + rest % local[d]) * strides[d];
      rest /= local[d];
    }
    part.append(whole, static_cast<size_t>(index * size), static_cast<size_t>(size));
  }
  return part;
}

// The distance of two tensors against the second's norm, or against 1 where that is small.
double Distance(DType dtype, const std::string& a, const std::string& b) {
  double difference = 0, norm = 0;
  for (int64_t e = 0; e < static_cast<int64_t>(b.size()) / SizeOf(dtype); ++e) {
    const double x = LoadAsDouble(dtype, a.data(), e), y = LoadAsDouble(dtype, b.data(), e);
    difference += (x - y) * (x - y);
    norm += y * y;
  }
  return std::sqrt(difference / (norm + 1));
}

// Runs a step several times, whole and in parts; empty when loss, gradients and the store agree after each.
class Comparison {
 public:
  Comparison(Net net, uint64_t seed, int64_t ranks)
      : graph_(testing::RandomStep(net, seed)), random_(seed), seed_(seed) {
    mesh_ = *Mesh::Of(ranks);
  }

  std::string Run(int steps) {
    if (graph_.nodes.empty()) return graph_.name;
    Resharder resharder(mesh_);
    const PropagateOptions options = RandomStrategies(&graph_, mesh_, random_);
    const auto plan = Propagate(graph_, resharder, options);
    if (!plan.ok()) return std::string(plan.status().message());
    std::vector<Graph> programs;
    for (int64_t r = 0; r < mesh_.ranks(); ++r) {
      auto program = Partition(graph_, *plan, resharder, r);
      if (!program.ok()) return std::string(program.status().message());
      const Status verified = Verify(*program);
      if (!verified.ok()) return std::string(verified.message());
      programs.push_back(*std::move(program));
    }
    const std::vector<int32_t> ids = graph_.Inputs();
    std::vector<std::string> whole = testing::RandomInputs(graph_, seed_);
    std::vector<std::vector<std::string>> parts(programs.size());
    for (size_t r = 0; r < programs.size(); ++r) {
      for (size_t k = 0; k < ids.size(); ++k)
        parts[r].push_back(Slice(mesh_, plan->Output({ids[k], 0}), graph_.nodes[ids[k]].outputs[0],
                                 static_cast<int64_t>(r), whole[k]));
    }
    for (int step = 0; step < steps; ++step) {
      const auto want = EvaluateReference(graph_, whole);
      const auto got = testing::RunInLockstep(programs, parts);
      if (!want.ok() || !got.ok()) return std::string((want.ok() ? got.status() : want.status()).message());
      for (size_t o = 0; o < graph_.outputs.size(); ++o) {
        const GraphOutput& out = graph_.outputs[o];
        const TensorType& type = graph_.TypeOf(out.value);
        const int32_t input = out.updates.empty() ? -1 : graph_.FindInput(out.updates);
        const size_t at = static_cast<size_t>(std::find(ids.begin(), ids.end(), input) - ids.begin());
        for (size_t r = 0; r < programs.size(); ++r) {
          const Layout layout = input < 0 ? Layout(static_cast<int>(type.rank())) : plan->Output({input, 0});
          const std::string expected = Slice(mesh_, layout, type, static_cast<int64_t>(r), (*want)[o]);
          const double distance = Distance(type.dtype, (*got)[r][o], expected);
          if (!(distance <= 1e-10))
            return absl::StrCat("step ", step, ": output '", out.name, "' of rank ", r, " differs by ", distance);
          if (input >= 0) parts[r][at] = (*got)[r][o];
        }
        if (input >= 0) whole[at] = (*want)[o];
      }
    }
    return "";
  }

  const Graph& graph() const { return graph_; }

 private:
  Graph graph_;
  Mesh mesh_;
  std::mt19937_64 random_;
  uint64_t seed_;
};

void CheckLaw(uint64_t seed, int steps) {
  constexpr int64_t kRanks[] = {2, 3, 4, 6, 8, 12, 16};
  const Net net = static_cast<Net>(seed % 3);
  const int64_t ranks = kRanks[seed / 3 % 7];
  Comparison comparison(net, seed, ranks);
  const std::string wrong = comparison.Run(steps);
  EXPECT_EQ(wrong, "") << ranks << " ranks; again: MSLUA_SEED=" << seed
                       << " bazel run //core/sharding:partition_test -- --gtest_filter=Partition.Law";
}

// The law: whatever the strategies, loss, gradients and three steps are those of one device. MSLUA_SEEDS says how many
// random networks are tried, MSLUA_SEED which one alone.
TEST(Partition, Law) {
  uint64_t seeds = 14, only = 0;
  if (const char* one = std::getenv("MSLUA_SEED"); one != nullptr && absl::SimpleAtoi(one, &only))
    return CheckLaw(only, 3);
  if (const char* many = std::getenv("MSLUA_SEEDS")) {
    ASSERT_TRUE(absl::SimpleAtoi(many, &seeds));
  }
  for (uint64_t seed = 0; seed < seeds; ++seed) CheckLaw(seed, 3);
}

// The same in f32 through the compiled kernels, ranks as threads: what a rank's program computes is within f32's
// rounding of the whole's.
TEST(Partition, LawThroughFastKernels) {
  for (uint64_t seed = 0; seed < 9; ++seed) {
    Graph graph = testing::RandomStep(static_cast<Net>(seed % 3), seed, /*f32=*/true);
    ASSERT_FALSE(graph.nodes.empty()) << graph.name;
    const int64_t ranks = 2 + static_cast<int64_t>(seed / 3 % 3);
    std::mt19937_64 random(seed);
    Resharder resharder(*Mesh::Of(ranks));
    const Mesh& mesh = resharder.mesh();
    const auto plan = Propagate(graph, resharder, RandomStrategies(&graph, mesh, random));
    ASSERT_TRUE(plan.ok()) << plan.status();
    const std::vector<std::string> inputs = testing::RandomInputs(graph, seed);
    const auto whole = testing::RunRanks({{graph, inputs}});
    ASSERT_TRUE(whole.ok()) << whole.status();
    std::vector<testing::RankProgram> programs;
    const std::vector<int32_t> ids = graph.Inputs();
    for (int64_t r = 0; r < ranks; ++r) {
      auto program = Partition(graph, *plan, resharder, r);
      ASSERT_TRUE(program.ok()) << program.status();
      programs.push_back({*std::move(program), {}});
      for (size_t k = 0; k < ids.size(); ++k)
        programs.back().inputs.push_back(
            Slice(mesh, plan->Output({ids[k], 0}), graph.nodes[ids[k]].outputs[0], r, inputs[k]));
    }
    const auto parts = testing::RunRanks(programs);
    ASSERT_TRUE(parts.ok()) << parts.status();
    for (size_t o = 0; o < graph.outputs.size(); ++o) {
      const TensorType& type = graph.TypeOf(graph.outputs[o].value);
      const std::string& updates = graph.outputs[o].updates;
      const Layout layout =
          updates.empty() ? Layout(static_cast<int>(type.rank())) : plan->Output({graph.FindInput(updates), 0});
      for (int64_t r = 0; r < ranks; ++r) {
        const std::string expected = Slice(mesh, layout, type, r, (*whole)[0][o]);
        EXPECT_LE(Distance(type.dtype, (*parts)[static_cast<size_t>(r)][o], expected), 1e-4)
            << "seed " << seed << ": output '" << graph.outputs[o].name << "' of rank " << r;
      }
    }
  }
}

}  // namespace
}  // namespace mslua
