#include "core/sharding/move_bound.h"

#include <random>

#include "core/sharding/reshard.h"
#include "core/sharding/testing/parse_layout.h"
#include "gtest/gtest.h"

namespace mslua {
namespace {

Layout RandomLayout(const Mesh& mesh, const Shape& shape, bool may_be_partial, std::mt19937_64& random) {
  Layout layout(static_cast<int>(shape.size()));
  std::vector<int> axes;
  for (int a = 0; a < mesh.axes(); ++a) axes.push_back(a);
  std::shuffle(axes.begin(), axes.end(), random);
  for (int a : axes) {
    const int use = static_cast<int>(random() % (shape.size() + 2));
    if (use < static_cast<int>(shape.size())) layout.Append(use, a);
    if (use == static_cast<int>(shape.size()) && may_be_partial) layout.SetPartial(a, Reduction::kSum);
  }
  return layout;
}

LinkCosts Links(const Mesh& mesh, uint64_t seed) {
  LinkCosts links;
  const LinkCosts::Link slow{15e-6, 4e-11}, fast{5e-6, 4e-12}, far{5e-6, 4e-11};
  for (int a = 0; a < mesh.axes(); ++a)
    links.axes.push_back(seed % 3 == 0 ? fast : a < 2 ? (seed % 3 == 1 ? slow : far) : fast);
  return links;
}

TEST(MoveBound, NoPlanIsCheaper) {
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    std::mt19937_64 random(seed);
    const Mesh mesh = *Mesh::Of(std::vector<int64_t>{4, 8, 12, 16, 6, 24, 32}[seed % 7]);
    const LinkCosts links = Links(mesh, seed / 7);
    const TensorType type{DType::kF32, seed % 2 == 0 ? Shape{48, 96} : Shape{4096 * 3, 48, 480}};
    const Layout from = RandomLayout(mesh, type.shape, true, random),
                 to = RandomLayout(mesh, type.shape, false, random);
    if (!from.Divides(mesh, type.shape) || !to.Divides(mesh, type.shape)) continue;
    Resharder resharder(mesh, links);
    const auto plan = resharder.Plan(from, to, type);
    ASSERT_TRUE(plan.ok()) << plan.status();
    const double whole = static_cast<double>(type.bytes());
    const MoveBound::Coefficients all = MoveBound(mesh, links).Of(from, to);
    const std::string what = from.ToString() + " -> " + to.ToString() + " on " + mesh.ToString();
    ASSERT_LE(all.Seconds(whole), (*plan)->seconds * (1 + 1e-9)) << what << " seed " << seed;
    ASSERT_LE(all.bytes * whole, (*plan)->bytes_received * (1 + 1e-9)) << what << " seed " << seed;
    double sum = 0;
    for (int k = 0; k < static_cast<int>(KindsOf(mesh, links).size()); ++k) {
      sum += MoveBound(mesh, links, k).Of(from, to).Seconds(whole);
    }
    ASSERT_LE(sum, (*plan)->seconds * (1 + 1e-9)) << what << " kind by kind, seed " << seed;
  }
}

TEST(MoveBound, IsReachedWhereOneStepDoes) {
  const Mesh mesh = *Mesh::Of(8);
  const TensorType type{DType::kF32, {64, 64}};
  const double whole = static_cast<double>(type.bytes());
  const std::pair<const char*, const char*> moves[] = {{"[a, -]", "[-, -]"},
                                                       {"[abc, -]", "[-, abc]"},
                                                       {"[-, -] sum(abc)", "[-, -]"},
                                                       {"[-, -] sum(abc)", "[abc, -]"},
                                                       {"[a, -] sum(bc)", "[a, bc]"}};
  for (const auto& [from, to] : moves) {
    Resharder resharder(mesh);
    const Layout f = *ParseLayout(from), t = *ParseLayout(to);
    const MoveBound::Coefficients least = MoveBound(mesh, LinkCosts()).Of(f, t);
    EXPECT_NEAR(least.Seconds(whole), (*resharder.Plan(f, t, type))->seconds, 1e-12) << from;
  }
}

}  // namespace
}  // namespace mslua
