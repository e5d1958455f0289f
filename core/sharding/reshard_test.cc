#include "core/sharding/reshard.h"

#include <algorithm>
#include <cstring>
#include <random>

#include "core/sharding/testing/lockstep.h"
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

// Bytes that one rank lacks of its part, for layouts without partial axes; the mean over ranks.
double Lacking(const Mesh& mesh, const Layout& from, const Layout& to, const TensorType& type) {
  double lacking = 0;
  const Shape have = from.Local(mesh, type.shape), want = to.Local(mesh, type.shape);
  for (int64_t r = 0; r < mesh.ranks(); ++r) {
    const Shape h = from.Begin(mesh, type.shape, r), w = to.Begin(mesh, type.shape, r);
    int64_t common = 1;
    for (size_t d = 0; d < h.size(); ++d)
      common *= std::max<int64_t>(0, std::min(h[d] + have[d], w[d] + want[d]) - std::max(h[d], w[d]));
    lacking += static_cast<double>((NumElements(want) - common) * SizeOf(type.dtype));
  }
  return lacking / static_cast<double>(mesh.ranks());
}

// Bytes over all pairs of layouts without partial axes and with at most one axis a dimension.
struct Laws {
  double received = 0, lacking = 0;
};

void CheckPair(Resharder& resharder, const Layout& from, const Layout& to, const TensorType& type, Laws* laws) {
  ASSERT_EQ(WrongResult(resharder, from, to, type), "");
  const ReshardPlan& plan = **resharder.Plan(from, to, type);
  const Mesh& mesh = resharder.mesh();
  const auto bytes = [&](const Layout& l) { return NumElements(l.Local(mesh, type.shape)) * SizeOf(type.dtype); };
  if (from != to) {
    EXPECT_LE(plan.peak_bytes, 2 * std::max(bytes(from), bytes(to))) << from.ToString() << " -> " << to.ToString();
  }
  const auto plain = [&](const Layout& l) {
    for (int d = 0; d < l.rank(); ++d) {
      if (l.Dim(d).size() > 1) return false;
    }
    return !l.partial();
  };
  if (!plain(from) || !plain(to)) return;
  for (const ReshardStep& s : plan.steps) {  // by the ranks' mean: in a permutation some may keep their part
    laws->received += s.kind == Move::kPermute
                          ? Lacking(mesh, s.before, s.after, type)
                          : CostOf(mesh, resharder.links(), s, static_cast<double>(bytes(s.before))).bytes_received;
  }
  laws->lacking += Lacking(mesh, from, to, type);
}

void CheckTriangle(Resharder& resharder, const Layout& a, const Layout& b, const Layout& c, const TensorType& type) {
  const auto seconds = [&](const Layout& x, const Layout& y) { return (*resharder.Plan(x, y, type))->seconds; };
  EXPECT_LE(seconds(a, c), (seconds(a, b) + seconds(b, c)) * (1 + 1e-12))
      << a.ToString() << " over " << b.ToString() << " to " << c.ToString();
}

// Random pairs and triples of layouts of one mesh.
Laws CheckLaws(int64_t ranks, const Shape& shape, int pairs, int triples) {
  const Mesh mesh = *Mesh::Of(ranks);
  LinkCosts links;
  links.axes.assign(static_cast<size_t>(mesh.axes()), {1e-13, 0.5e-9});  // bytes and not messages decide
  links.copy_beta = 1e-14;
  Resharder resharder(mesh, links);
  const TensorType type{DType::kF64, shape};
  const auto from = AllLayouts(resharder.mesh(), shape, true), to = AllLayouts(resharder.mesh(), shape, false);
  std::mt19937 random(7);
  const auto any = [&](const std::vector<Layout>& list) { return list[random() % list.size()]; };
  Laws laws;
  for (int i = 0; i < pairs; ++i) CheckPair(resharder, any(from), any(to), type, &laws);
  for (int i = 0; i < triples; ++i) CheckTriangle(resharder, any(from), any(to), any(to), type);
  return laws;
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

TEST(Reshard, LawsOn8Ranks) {
  const Laws laws = CheckLaws(8, {8, 8, 8}, 600, 300);
  EXPECT_LE(laws.received, 1.15 * laws.lacking) << laws.received / laws.lacking;
}

TEST(Reshard, LawsOn6And12Ranks) {
  CheckLaws(6, {6, 12}, 200, 200);
  CheckLaws(12, {12, 12}, 100, 100);
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
