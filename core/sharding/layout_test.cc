#include "core/sharding/layout.h"

#include <set>

#include "core/sharding/testing/parse_layout.h"
#include "gtest/gtest.h"

namespace mslua {
namespace {

TEST(Mesh, AxesArePrimesAndGroupsAreRanks) {
  const auto mesh = Mesh::Of(12);
  ASSERT_TRUE(mesh.ok()) << mesh.status();
  EXPECT_EQ(mesh->ToString(), "2x2x3");
  EXPECT_EQ(mesh->Coordinate(11, 2), 2);
  EXPECT_EQ(mesh->Group(4, {0, 2}), (std::vector<int64_t>{3, 4, 5, 9, 10, 11}));
  EXPECT_EQ(mesh->Group(4, {2, 0}), (std::vector<int64_t>{3, 9, 4, 10, 5, 11}));
  for (int64_t r : mesh->Group(7, {1, 2})) EXPECT_EQ(mesh->Group(7, {1, 2})[mesh->Index(r, {1, 2})], r);
  EXPECT_EQ(Mesh::Of(0).status().message(), "a mesh of 0 ranks: expected 1 or more");
  EXPECT_FALSE(Mesh::Of(1 << 13).ok());
}

TEST(Mesh, OfAStageStartsAtItsFirstRank) {
  const auto mesh = Mesh::Of(4, 8);
  ASSERT_TRUE(mesh.ok());
  EXPECT_EQ(mesh->Group(9, {0, 1}), (std::vector<int64_t>{8, 9, 10, 11}));
}

TEST(Layout, TextReadsBack) {
  for (const char* text : {"[]", "[-]", "[a, bc]", "[cb, -, a]", "[-, c] sum(ab)", "[l] max(k)", "[] prod(a)"}) {
    const auto layout = ParseLayout(text);
    ASSERT_TRUE(layout.ok()) << layout.status();
    EXPECT_EQ(layout->ToString(), text);
  }
  EXPECT_EQ(ParseLayout("[a, a]").status().message(), "layout '[a, a]': axis a is used twice");
  EXPECT_FALSE(ParseLayout("[a").ok());
  EXPECT_FALSE(ParseLayout("[a] avg(b)").ok());
  EXPECT_FALSE(ParseLayout("[1]").ok());
}

TEST(Layout, RemovingWhatWasAddedGivesAnEqualValue) {
  Layout a(2), b(2);
  a.Append(1, 0);
  a.Append(1, 2);
  a.SetPartial(1, Reduction::kMax);
  a.Remove(1);
  b.Append(1, 0);
  b.Append(1, 2);
  EXPECT_EQ(a, b);
  a.Remove(2);
  a.Remove(0);
  EXPECT_TRUE(a.replicated());
}

// Every element of a tensor is on just as many ranks as the axes that replicate say.
TEST(Layout, PartsCoverTheWhole) {
  const auto mesh = Mesh::Of(12);
  const Shape shape{6, 4};
  const auto layout = ParseLayout("[c, b]");
  const Shape local = layout->Local(*mesh, shape);
  EXPECT_EQ(local, (Shape{2, 2}));
  std::multiset<std::pair<int64_t, int64_t>> covered;
  for (int64_t r = 0; r < mesh->ranks(); ++r) {
    const Shape begin = layout->Begin(*mesh, shape, r);
    for (int64_t i = 0; i < local[0]; ++i) {
      for (int64_t j = 0; j < local[1]; ++j) covered.insert({begin[0] + i, begin[1] + j});
    }
  }
  for (int64_t i = 0; i < 6; ++i) {
    for (int64_t j = 0; j < 4; ++j) EXPECT_EQ(covered.count({i, j}), 2u);
  }
}

}  // namespace
}  // namespace mslua
