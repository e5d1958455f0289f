#include "core/sharding/partition.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <random>
#include <tuple>

#include "absl/strings/numbers.h"
#include "core/op/marks.h"
#include "core/runtime/testing/run_ranks.h"
#include "core/sharding/search/search.h"
#include "core/sharding/testing/models.h"
#include "core/sharding/testing/parse_layout.h"
#include "gtest/gtest.h"

namespace mslua {
namespace {

using testing::Net;

// What a search of any mode chooses where arithmetic is so slow that sharding pays.
StatusOr<std::vector<absl::optional<Sharding>>> Searched(const Graph& graph, const Mesh& mesh, uint64_t mode) {
  SearchOptions options;
  options.mode = static_cast<SearchMode>(mode);
  options.max_entries = 1e5;
  options.cluster.flops_per_second = 1e6;
  options.cluster.bytes_per_second = 1e7;
  ASSIGN_OR_RETURN(SearchResult result, Search(graph, mesh, options));
  return std::move(result.chosen);
}

// A search may leave the axes of a factor in another order than the mesh's.
Sharding InSomeOrder(Sharding s, std::mt19937_64& random) {
  for (AxisList& axes : s.factors) {
    for (size_t i = 1; i < axes.size(); ++i) std::swap(axes[i], axes[random() % (i + 1)]);
  }
  return s;
}

// Random legal shardings for about half of the forward nodes: as users' strategies where that can be said and no
// parameter is read, else as a search would choose them. The other nodes as a search of some mode has it, or left open.
StatusOr<PropagateOptions> RandomStrategies(Graph* graph, const Mesh& mesh, std::mt19937_64& random) {
  PropagateOptions options;
  options.chosen.resize(graph->nodes.size());
  if (random() % 2 == 0) {
    ASSIGN_OR_RETURN(options.chosen, Searched(*graph, mesh, random() % 3));
  }
  if (random() % 3 == 0) {
    options.optimizer_shards.emplace();
    options.optimizer_shards->parameters = random() % 2 == 0;
  }
  for (size_t i = 0; i < graph->nodes.size(); ++i) {
    Node& n = graph->nodes[i];
    if (n.inputs.empty() || mark::kOrigin.Has(n.attrs) || random() % 2 == 0) continue;
    const NodeRule rule = *RuleOf(*graph, n);
    const auto candidates = Candidates(mesh, rule);
    Sharding s = candidates[random() % candidates.size()];
    bool parameter = false;
    for (Value v : n.inputs) parameter |= graph->nodes[v.node].op->name == "input";
    if (!parameter && random() % 2 == 0)
      mark::kUserStrategy.Set(n.attrs, ToString(StrategyOf(mesh, rule, s)));
    else
      options.chosen[i] = InSomeOrder(std::move(s), random);
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

constexpr int64_t kRanks[] = {2, 3, 4, 6, 8, 12, 16};

// One random network with random strategies on some number of ranks, all from a seed.
struct Case {
  uint64_t seed;
  // f32 through the compiled kernels, within 1e-4; else f64 through the reference kernels, within 1e-10.
  bool fast;

  Net net() const { return static_cast<Net>(seed % testing::kNets); }
  // Of half of the seeds only bytes cost anything, so that exchanges are among the plans.
  LinkCosts links(const Mesh& mesh) const {
    LinkCosts costs;
    if (seed % 8 < 4) costs.axes.assign(static_cast<size_t>(mesh.axes()), {1e-13, 0.5e-9});
    return costs;
  }
  int64_t ranks() const { return kRanks[seed / testing::kNets % std::size(kRanks)]; }
};

// Runs a step three times, whole and in parts that are threads; empty when loss, gradients and the store agree after
// each.
class Comparison {
 public:
  explicit Comparison(const Case& tried)
      : case_(tried),
        mesh_(*Mesh::Of(tried.ranks())),
        resharder_(mesh_, tried.links(mesh_)),
        graph_(testing::RandomStep(tried.net(), tried.seed, tried.fast)) {}

  std::string Run() {
    if (graph_.nodes.empty()) return graph_.name;
    const Status status = Compare();
    return std::string(status.message());
  }

 private:
  static constexpr int kSteps = 3;

  Status Compare() {
    std::mt19937_64 random(case_.seed);
    ASSIGN_OR_RETURN(const PropagateOptions options, RandomStrategies(&graph_, mesh_, random));
    ASSIGN_OR_RETURN(plan_, Propagate(graph_, resharder_, options));
    const std::vector<std::string> inputs = testing::RandomInputs(graph_, case_.seed);
    ASSIGN_OR_RETURN(const auto programs, Programs(inputs));
    CompileOptions compile;
    compile.reference_kernels = !case_.fast;
    compile.optimize = case_.fast;
    ASSIGN_OR_RETURN(const auto whole, testing::RunRanksByStep({{graph_, inputs}}, compile, kSteps));
    ASSIGN_OR_RETURN(const auto parts, testing::RunRanksByStep(programs, compile, kSteps));
    for (size_t step = 0; step < kSteps; ++step) {
      for (size_t r = 0; r < programs.size(); ++r) {
        for (size_t o = 0; o < graph_.outputs.size(); ++o) {
          const double distance = DistanceOf(o, static_cast<int64_t>(r), parts[step][r][o], whole[step][0][o]);
          if (distance <= (case_.fast ? 1e-4 : 1e-10)) continue;
          ASSIGN_OR_RETURN(const double own, case_.fast ? OwnError(step, o, whole[step][0][o]) : 0.0);
          if (!(distance <= 4 * own))
            return absl::InternalError(absl::StrCat("step ", step, ": output '", graph_.outputs[o].name, "' of rank ",
                                                    r, " differs by ", distance));
        }
      }
    }
    return absl::OkStatus();
  }

  StatusOr<std::vector<testing::RankProgram>> Programs(const std::vector<std::string>& inputs) {
    const std::vector<int32_t> ids = graph_.Inputs();
    std::vector<testing::RankProgram> programs;
    for (int64_t r = 0; r < mesh_.ranks(); ++r) {
      ASSIGN_OR_RETURN(Graph program, Partition(graph_, plan_, resharder_, r));
      RETURN_IF_ERROR(Verify(program));
      programs.push_back({std::move(program), {}});
      for (size_t k = 0; k < ids.size(); ++k)
        programs.back().inputs.push_back(
            Slice(mesh_, plan_.Output({ids[k], 0}), graph_.nodes[ids[k]].outputs[0], r, inputs[k]));
    }
    return programs;
  }

  // How far the f32 step on one device is from the same in f64: of networks that enlarge rounding more is not asked.
  StatusOr<double> OwnError(size_t step, size_t output, const std::string& single) {
    const Graph exact = testing::RandomStep(case_.net(), case_.seed, /*f32=*/false);
    ASSIGN_OR_RETURN(const auto steps,
                     testing::RunRanksByStep({{exact, testing::RandomInputs(exact, case_.seed)}}, {}, kSteps));
    const std::string& wide = steps[step][0][output];
    std::string narrow(single.size(), '\0');
    for (int64_t e = 0; e < static_cast<int64_t>(single.size() / sizeof(float)); ++e)
      StoreDouble(DType::kF32, &narrow[0], e, LoadAsDouble(DType::kF64, wide.data(), e));
    return Distance(DType::kF32, single, narrow);
  }

  double DistanceOf(size_t output, int64_t rank, const std::string& part, const std::string& whole) const {
    const GraphOutput& out = graph_.outputs[output];
    const TensorType& type = graph_.TypeOf(out.value);
    const int32_t input = out.updates.empty() ? -1 : graph_.FindInput(out.updates);
    const Layout layout = input < 0 ? Layout(static_cast<int>(type.rank())) : plan_.Output({input, 0});
    return Distance(type.dtype, part, Slice(mesh_, layout, type, rank, whole));
  }

  const Case case_;
  const Mesh mesh_;
  Resharder resharder_;
  Graph graph_;
  ShardPlan plan_;
};

// Tries seeds [0, n), n from the variable MSLUA_<NAME>S or `few`; only that of MSLUA_<NAME>, where it is set.
void CheckEqualsOneDevice(const std::string& name, bool fast, uint64_t few) {
  uint64_t first = 0, count = few;
  if (const char* many = std::getenv((name + "S").c_str())) {
    ASSERT_TRUE(absl::SimpleAtoi(many, &count));
  }
  if (const char* one = std::getenv(name.c_str())) {
    ASSERT_TRUE(absl::SimpleAtoi(one, &first));
    count = 1;
  }
  for (uint64_t seed = first; seed < first + count; ++seed) {
    const Case tried{seed, fast};
    EXPECT_EQ(Comparison(tried).Run(), "")
        << tried.ranks() << " ranks; again: " << name << "=" << seed << " bazel run //core/sharding:partition_test --"
        << " --gtest_filter=Partition.EqualsOneDevice" << (fast ? "ThroughFastKernels" : "");
  }
}

// The invariant: whatever the strategies, loss, gradients and three steps are those of one device.
TEST(Partition, EqualsOneDevice) { CheckEqualsOneDevice("MSLUA_SEED", false, 14); }

TEST(Partition, LawThroughFastKernels) { CheckEqualsOneDevice("MSLUA_FAST_SEED", true, 14); }

// Between ranks that are threads, where every message costs nothing and every byte something.
TEST(Partition, AnExchangeBetweenRanks) {
  const std::tuple<int64_t, const char*, const char*> moves[] = {
      {4, "[ab, -]", "[-, a]"}, {6, "[ab, -]", "[b, a]"}, {12, "[a, cb]", "[bc, a]"}, {12, "[c, -]", "[a, c]"}};
  for (const auto& [ranks, from_text, to_text] : moves) {
    const Mesh mesh = *Mesh::Of(ranks);
    LinkCosts links;
    links.axes.assign(static_cast<size_t>(mesh.axes()), {1e-13, 0.5e-9});
    Resharder resharder(mesh, links);
    const Layout from = *ParseLayout(from_text), to = *ParseLayout(to_text);
    const TensorType type{DType::kF32, {24, 36}};
    const ReshardPlan& plan = **resharder.Plan(from, to, type);
    EXPECT_TRUE(std::any_of(plan.steps.begin(), plan.steps.end(),
                            [](const ReshardStep& s) { return s.kind == Move::kExchange; }))
        << from_text << " -> " << to_text;
    std::string whole(static_cast<size_t>(type.bytes()), '\0');
    for (int64_t e = 0; e < type.elements(); ++e) StoreDouble(type.dtype, &whole[0], e, static_cast<double>(e));
    std::vector<testing::RankProgram> programs;
    for (int64_t r = 0; r < ranks; ++r) {
      GraphBuilder g;
      const Value x = g.Input("x", kData, {type.dtype, from.Local(mesh, type.shape)});
      g.Output("y", EmitReshard(g, mesh, r, plan, x, type));
      programs.push_back({*g.Finish(), {Slice(mesh, from, type, r, whole)}});
    }
    const auto results = testing::RunRanks(programs);
    ASSERT_TRUE(results.ok()) << results.status();
    for (int64_t r = 0; r < ranks; ++r)
      EXPECT_TRUE((*results)[static_cast<size_t>(r)][0] == Slice(mesh, to, type, r, whole))
          << from_text << " -> " << to_text << ", rank " << r;
  }
}

}  // namespace
}  // namespace mslua
