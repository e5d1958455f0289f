#include "core/sharding/reshard.h"

#include <algorithm>
#include <cstring>
#include <random>

#include "core/sharding/testing/lockstep.h"
#include "core/sharding/testing/parse_layout.h"
#include "gtest/gtest.h"

namespace mslua {
namespace {

Layout L(absl::string_view text) { return *ParseLayout(text); }

// Every layout of `rank` dimensions on the mesh that divides `shape`; with partial ones when `partial`.
std::vector<Layout> AllLayouts(const Mesh& mesh, const Shape& shape, bool partial) {
  std::vector<Layout> done{Layout(static_cast<int>(shape.size()))};
  std::vector<int> order(static_cast<size_t>(mesh.axes()));
  for (int a = 0; a < mesh.axes(); ++a) order[static_cast<size_t>(a)] = a;
  do {  // axes appended in every order
    std::vector<Layout> some{Layout(static_cast<int>(shape.size()))};
    for (int a : order) {
      const size_t count = some.size();
      for (size_t i = 0; i < count; ++i) {
        for (int d = 0; d < static_cast<int>(shape.size()); ++d) {
          some.push_back(some[i]);
          some.back().Append(d, a);
        }
        if (partial) {
          some.push_back(some[i]);
          some.back().SetPartial(a, Reduction::kSum);
        }
      }
    }
    done.insert(done.end(), some.begin(), some.end());
  } while (std::next_permutation(order.begin(), order.end()));
  std::sort(done.begin(), done.end());
  done.erase(std::unique(done.begin(), done.end()), done.end());
  done.erase(std::remove_if(done.begin(), done.end(), [&](const Layout& l) { return !l.Divides(mesh, shape); }),
             done.end());
  return done;
}

// The part of the tensor 0, 1, 2, ... that a rank has; where it is partial, the ranks' parts add up to it.
std::string Part(const Mesh& mesh, const Layout& layout, const TensorType& type, int64_t rank) {
  const Shape local = layout.Local(mesh, type.shape), begin = layout.Begin(mesh, type.shape, rank),
              strides = RowMajorStrides(type.shape);
  const double share = layout.partial() ? static_cast<double>(1 + mesh.Index(rank, layout.Partial())) : 0;
  const double ranks = static_cast<double>(mesh.Size(layout.Partial()));
  const TensorType part{type.dtype, local};
  std::string bytes(static_cast<size_t>(part.bytes()), '\0');
  for (int64_t e = 0; e < part.elements(); ++e) {
    int64_t rest = e, index = 0;
    for (int64_t d = type.rank() - 1; d >= 0; --d) {
      index += (begin[d] + rest % local[d]) * strides[d];
      rest /= local[d];
    }
    double v = static_cast<double>(index);
    if (layout.partial()) v = share == ranks ? v - ranks * (ranks - 1) / 2 : share;  // 1 + 2 + ... + the rest
    StoreDouble(type.dtype, &bytes[0], e, v);
  }
  return bytes;
}

// Runs a plan on all ranks; empty when every rank then has its part.
std::string WrongResult(Resharder& resharder, const Layout& from, const Layout& to, const TensorType& type) {
  const Mesh& mesh = resharder.mesh();
  const auto plan = resharder.Plan(from, to, type);
  if (!plan.ok()) return std::string(plan.status().message());
  std::vector<Graph> graphs;
  std::vector<std::vector<std::string>> inputs;
  for (int64_t r = 0; r < mesh.ranks(); ++r) {
    GraphBuilder g;
    const Value x = g.Input("x", kData, {type.dtype, from.Local(mesh, type.shape)});
    g.Output("y", EmitReshard(g, mesh, r, **plan, x, type));
    auto graph = g.Finish();
    if (!graph.ok()) return std::string(graph.status().message());
    graphs.push_back(*std::move(graph));
    inputs.push_back({Part(mesh, from, type, r)});
  }
  const auto results = testing::RunInLockstep(graphs, inputs);
  if (!results.ok()) return std::string(results.status().message());
  if (to.partial()) return "";  // the ranks' shares are theirs to choose
  for (int64_t r = 0; r < mesh.ranks(); ++r) {
    if ((*results)[static_cast<size_t>(r)][0] != Part(mesh, to, type, r))
      return absl::StrCat("from ", from.ToString(), " to ", to.ToString(), ": rank ", r, " has a wrong part\n",
                          ToString(graphs[static_cast<size_t>(r)]));
  }
  return "";
}

// Bytes that the rank that lacks most lacks of its part, for layouts without partial axes.
double Lacking(const Mesh& mesh, const Layout& from, const Layout& to, const TensorType& type) {
  const int64_t common = LeastOverlap(mesh, from, to, type.shape);
  return static_cast<double>((NumElements(to.Local(mesh, type.shape)) - common) * SizeOf(type.dtype));
}

// The layouts of a tensor on a mesh whose links make bytes and not messages decide.
struct World {
  World(int64_t ranks, Shape shape)
      : type{DType::kF64, std::move(shape)},
        resharder(*Mesh::Of(ranks), Links(*Mesh::Of(ranks))),
        from(AllLayouts(resharder.mesh(), type.shape, true)),
        to(AllLayouts(resharder.mesh(), type.shape, false)) {}
  static LinkCosts Links(const Mesh& mesh) {
    LinkCosts links;
    links.axes.assign(static_cast<size_t>(mesh.axes()), {1e-13, 0.5e-9});
    links.copy_beta = 1e-14;
    return links;
  }

  // By index of `from` and of `to`.
  double Seconds(size_t a, size_t b) { return (*resharder.Plan(from[a], to[b], type))->seconds; }
  // Of a layout of `to` in `from`.
  size_t Place(size_t b) const {
    return static_cast<size_t>(std::lower_bound(from.begin(), from.end(), to[b]) - from.begin());
  }

  TensorType type;
  Resharder resharder;
  std::vector<Layout> from, to;  // `from` with partial ones
};

// Right results, little memory, and no byte too many where nothing is added up.
void CheckPair(World& w, const Layout& from, const Layout& to, bool run) {
  const Mesh& mesh = w.resharder.mesh();
  if (run) {
    ASSERT_EQ(WrongResult(w.resharder, from, to, w.type), "");
  }
  const ReshardPlan& plan = **w.resharder.Plan(from, to, w.type);
  const auto bytes = [&](const Layout& l) { return NumElements(l.Local(mesh, w.type.shape)) * SizeOf(w.type.dtype); };
  if (from != to) {
    ASSERT_LE(plan.peak_bytes, 2 * std::max(bytes(from), bytes(to))) << from.ToString() << " -> " << to.ToString();
  }
  if (from.partial()) return;
  ASSERT_DOUBLE_EQ(plan.bytes_received, Lacking(mesh, from, to, w.type))
      << from.ToString() << " -> " << to.ToString() << " by " << plan.steps.size() << " steps";
}

void ExpectTriangle(const World& w, size_t a, size_t b, size_t c, double direct, double first, double second) {
  ASSERT_LE(direct, (first + second) * (1 + 1e-12))
      << w.from[a].ToString() << " over " << w.to[b].ToString() << " to " << w.to[c].ToString();
}

// Random pairs and triples.
void CheckSome(int64_t ranks, const Shape& shape, int pairs, int triples) {
  World w(ranks, shape);
  std::mt19937 random(7);
  for (int i = 0; i < pairs; ++i)
    CheckPair(w, w.from[random() % w.from.size()], w.to[random() % w.to.size()], /*run=*/true);
  for (int i = 0; i < triples; ++i) {
    const size_t a = random() % w.from.size(), b = random() % w.to.size(), c = random() % w.to.size();
    ExpectTriangle(w, a, b, c, w.Seconds(a, c), w.Seconds(a, b), w.Seconds(w.Place(b), c));
  }
}

// All pairs, of which every `run`-th is run, and all triples or 10^5 random ones.
void CheckAll(int64_t ranks, const Shape& shape, size_t run, bool all_triples) {
  World w(ranks, shape);
  std::vector<std::vector<double>> seconds(w.from.size(), std::vector<double>(w.to.size()));
  size_t count = 0;
  for (size_t a = 0; a < w.from.size(); ++a) {
    for (size_t b = 0; b < w.to.size(); ++b) {
      CheckPair(w, w.from[a], w.to[b], count++ % run == 0);
      if (::testing::Test::HasFatalFailure()) return;
      seconds[a][b] = w.Seconds(a, b);
    }
  }
  const auto triple = [&](size_t a, size_t b, size_t c) {
    ExpectTriangle(w, a, b, c, seconds[a][c], seconds[a][b], seconds[w.Place(b)][c]);
  };
  std::mt19937 random(7);
  for (int i = 0; i < 100000 && !all_triples; ++i)
    triple(random() % w.from.size(), random() % w.to.size(), random() % w.to.size());
  for (size_t a = 0; a < w.from.size() && all_triples; ++a) {
    for (size_t b = 0; b < w.to.size(); ++b) {
      for (size_t c = 0; c < w.to.size(); ++c) triple(a, b, c);
    }
  }
  std::printf("%zu pairs of layouts on %s\n", count, w.resharder.mesh().ToString().c_str());
}

TEST(Reshard, APartialProductBecomesShardedByOneReduceScatter) {
  Resharder resharder(*Mesh::Of(8));
  const TensorType type{DType::kF32, {16, 16}};
  const ReshardPlan& plan = **resharder.Plan(L("[a, -] sum(bc)"), L("[a, bc]"), type);
  ASSERT_EQ(plan.steps.size(), 1u);
  EXPECT_EQ(plan.steps[0].kind, Move::kReduceScatter);
  EXPECT_EQ(plan.bytes_received, 384);  // an all_reduce and a slice: 768
}

TEST(Reshard, KnownWays) {
  Resharder resharder(*Mesh::Of(8));
  const TensorType type{DType::kF32, {64, 64, 64}};
  const auto way = [&](absl::string_view from, absl::string_view to) {
    std::string names;
    for (const ReshardStep& s : (*resharder.Plan(L(from), L(to), type))->steps)
      absl::StrAppend(&names, names.empty() ? "" : " ", Name(s.kind));
    return names;
  };
  EXPECT_EQ(way("[a, -, -]", "[a, -, -]"), "");
  EXPECT_EQ(way("[-, -, -]", "[a, bc, -]"), "strided_slice");
  EXPECT_EQ(way("[abc, -, -]", "[-, -, -]"), "all_gather");
  EXPECT_EQ(way("[abc, -, -]", "[-, abc, -]"), "all_to_all");
  EXPECT_EQ(way("[a, -, -]", "[b, -, -]"), "collective_permute");
  EXPECT_EQ(way("[-, -, -] sum(abc)", "[-, -, -]"), "all_reduce");
  EXPECT_EQ(way("[-, -, -] sum(abc)", "[abc, -, -]"), "reduce_scatter");
  EXPECT_EQ(way("[a, -, -] sum(bc)", "[a, b, -] sum(c)"), "reduce_scatter");
}

TEST(Reshard, ImpossibleWaysAreErrors) {
  Resharder resharder(*Mesh::Of(4));
  const TensorType type{DType::kF32, {6, 4}};
  EXPECT_FALSE(resharder.Plan(L("[-, -]"), L("[ab, -]"), type).ok());
  EXPECT_FALSE(resharder.Plan(L("[-, -]"), L("[-, -] sum(a)"), type).ok());
  EXPECT_FALSE(resharder.Plan(L("[-]"), L("[-, -]"), type).ok());
}

TEST(Reshard, LawsOn8Ranks) { CheckSome(8, {8, 8, 8}, 600, 300); }

TEST(Reshard, LawsOn6And12Ranks) {
  CheckSome(6, {6, 12}, 200, 200);
  CheckSome(12, {12, 12}, 100, 100);
}

// Every pair of layouts moves as few bytes as can be, and no way over a third layout is shorter.
TEST(Reshard, AllOn2x2x2) { CheckAll(8, {8, 8, 8}, 1, true); }
TEST(Reshard, AllOn2x2x3) { CheckAll(12, {12, 12, 12}, 20, false); }
// 849400 pairs: bazel test //core/sharding:reshard_all_test
TEST(Reshard, DISABLED_AllOn2x2x2x2) { CheckAll(16, {16, 16, 16}, 200, false); }

// What rows in quarters lack of columns in halves comes by no chain of other steps alone.
TEST(Reshard, AnExchangeBringsNothingTwice) {
  World w(4, {4, 4});
  const ReshardPlan& plan = **w.resharder.Plan(L("[ab, -]"), L("[-, a]"), w.type);
  ASSERT_EQ(plan.steps.size(), 1u);
  EXPECT_EQ(plan.steps[0].kind, Move::kExchange);
  EXPECT_EQ(plan.bytes_received, 6 * 8);
}

TEST(Reshard, AThousandRanksTakeNoTime) {
  Resharder resharder(*Mesh::Of(1024));
  const TensorType type{DType::kF32, {1024, 4096, 1024}};
  for (const auto& [from, to] :
       {std::pair{"[abcde, fghij, -]", "[abcde, -, fghij]"},
        std::pair{"[abcde, -, -] sum(fghij)", "[abcdefghij, -, -]"}, std::pair{"[jihgf, -, -]", "[abcde, fgh, -]"}}) {
    EXPECT_TRUE(resharder.Plan(L(from), L(to), type).ok()) << from;
  }
}

}  // namespace
}  // namespace mslua
