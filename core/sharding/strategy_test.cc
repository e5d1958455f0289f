#include "core/sharding/strategy.h"

#include "core/graph/builder.h"
#include "gtest/gtest.h"

namespace mslua {
namespace {

class StrategyTest : public ::testing::Test {
 protected:
  Value Input(Shape shape, DType dtype = DType::kF32) {
    return g_.Input(absl::StrCat("x", g_.graph().nodes.size()), kData, {dtype, std::move(shape)});
  }
  // The parts that a strategy for 8 ranks gives the node of `v`, or the error's text.
  std::string Parts(Value v, absl::string_view text, int64_t ranks = 8) {
    const Node& node = g_.graph().nodes[v.node];
    const auto rule = RuleOf(g_.graph(), node);
    const auto strategy = ParseStrategy(text);
    if (!rule.ok() || !strategy.ok()) return std::string((rule.ok() ? strategy.status() : rule.status()).message());
    const auto parts = FactorParts(*Mesh::Of(ranks), g_.graph(), node, *rule, *strategy);
    if (!parts.ok()) return std::string(parts.status().message());
    std::string out;
    for (size_t f = 0; f < parts->size(); ++f) absl::StrAppend(&out, rule->rule.factors[f].name, (*parts)[f], " ");
    return out;
  }
  GraphBuilder g_;
};

TEST_F(StrategyTest, GivesPartsOfFactors) {
  const Value y = g_.Op("matmul", {Input({16, 32}), Input({32, 16})});
  EXPECT_EQ(Parts(y, "((2,4),(4,1))"), "i2 k4 j1 ");
  EXPECT_EQ(Parts(y, "((2, 1), (1, 2))"), "i2 k1 j2 ");
  EXPECT_EQ(Parts(y, "((4,2),(2,1))", 16), "i4 k2 j1 ");
}

TEST_F(StrategyTest, ErrorsNameOperatorInputDimensionAndFactor) {
  g_.SetLocation(std::make_shared<Location>(Location{"Net/matmul", "r.lua", 17, ""}));
  const Value y = g_.Op("matmul", {Input({16, 32}), Input({32, 16})});
  const auto starts = [&](absl::string_view strategy) {
    return absl::StrCat("r.lua:17: MatMul: strategy ", strategy, ": ");
  };
  EXPECT_EQ(Parts(y, "((2,4))"), starts("((2,4))") + "has 1 entries, the operator has 2 inputs");
  EXPECT_EQ(Parts(y, "((2,4),(4))"),
            starts("((2,4),(4))") + "entry 2 has 1 numbers, but w is f32[32,16] with 2 dimensions");
  EXPECT_EQ(Parts(y, "((3,4),(4,1))"),
            starts("((3,4),(4,1))") +
                "dimension 1 of x (f32[16,32], factor 'i') is sharded 3 ways, which does not "
                "divide 16 (use a divisor of both 16 and 8)");
  EXPECT_EQ(Parts(y, "((0,4),(4,1))"),
            starts("((0,4),(4,1))") +
                "dimension 1 of x (f32[16,32], factor 'i') is sharded 0 ways, expected a number from 1");
  EXPECT_EQ(
      Parts(y, "((2,4),(2,1))"),
      starts("((2,4),(2,1))") +
          "dimension 2 of x (f32[16,32], factor 'k') is sharded 4 ways, but dimension 1 of w (f32[32,16], factor 'k') "
          "is sharded 2 ways: the two are one factor and need the same number");
  EXPECT_EQ(Parts(y, "((4,4),(4,1))"),
            starts("((4,4),(4,1))") + "has 16 shards, which does not divide 8 devices (use a divisor of 8)");
  EXPECT_EQ(Parts(y, "((16,1),(1,1))"),
            starts("((16,1),(1,1))") +
                "dimension 1 of x (f32[16,32], factor 'i') is sharded 16 ways, which does not divide 8 devices "
                "(use a divisor of both 16 and 8)");
  EXPECT_EQ(Parts(y, "2,4"), "'2,4' is not a strategy such as ((2,4),(4,1))");
  const Value s = g_.Op("softmax", {y});
  EXPECT_EQ(
      Parts(s, "((1,2))"),
      "r.lua:17: Softmax: strategy ((1,2)): dimension 2 of x (f32[16,16], factor 'd1') is sharded 2 ways, but the "
      "operator needs it whole on a device (use 1)");
}

TEST_F(StrategyTest, ACompoundDimensionIsCutAlongItsOutermostPart) {
  const Value y = Reshape(g_, Input({24, 5}), {4, 6, 5});
  EXPECT_EQ(Parts(y, "((4,1))"), "f04 f11 f21 ");
  EXPECT_NE(Parts(y, "((8,1))").find("is sharded 8 ways, but its outermost part has 4 elements"), std::string::npos);
}

TEST_F(StrategyTest, ReshapeKeepsDimensionsBesideOnes) {
  const Value y = Reshape(g_, Input({8, 3}), {1, 8, 1, 3});
  EXPECT_EQ(Parts(y, "((8,1))"), "f08 f11 ");
  const Value back = Reshape(g_, y, {24});
  EXPECT_EQ(Parts(back, "((1,8,1,1))"), "f08 f11 ");
}

TEST(Strategy, TextReadsBack) {
  for (const char* text : {"()", "(())", "((2))", "((2,4),(4,1))", "((1),(),(2,3))"}) {
    const auto s = ParseStrategy(text);
    ASSERT_TRUE(s.ok()) << s.status();
    EXPECT_EQ(ToString(*s), text);
  }
  for (const char* text : {"", "(", "((2)", "((2),,(3))", "((a))", "(2)"})
    EXPECT_FALSE(ParseStrategy(text).ok()) << text;
}

TEST(Assignments, TakeAxesInOrderAndOmitNone) {
  const auto mesh = *Mesh::Of(12);
  const auto found = Assignments(mesh, {2, 3, 1});
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].factors[0], (AxisList{0}));
  EXPECT_EQ(found[0].factors[1], (AxisList{2}));
  EXPECT_EQ(found[1].factors[0], (AxisList{1}));
  EXPECT_EQ(Assignments(mesh, {6}).size(), 2u);
  EXPECT_EQ(Assignments(*Mesh::Of(8), {2, 4})[0].factors[1], (AxisList{1, 2}));
}

TEST_F(StrategyTest, CandidatesAreLegalAndDistinct) {
  const Value y = g_.Op("matmul", {Input({4, 6}), Input({6, 8})});
  const auto mesh = *Mesh::Of(12);
  const auto rule = *RuleOf(g_.graph(), g_.NodeOf(y));
  const auto all = Candidates(mesh, rule);
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_TRUE(CheckSharding(mesh, rule, all[i]).ok()) << CheckSharding(mesh, rule, all[i]);
    for (size_t j = 0; j < i; ++j) EXPECT_FALSE(all[i] == all[j]);
  }
  // Axes a and b (2 each): none, i, k or j, but not both on k (6); axis c (3): none or k. 15 pairs, 2 each.
  EXPECT_EQ(all.size(), 30u);
}

TEST_F(StrategyTest, AFactorOfTheInputsAloneLeavesAPartialOutput) {
  const Value y = g_.Op("matmul", {Input({16, 32}), Input({32, 16})});
  const auto mesh = *Mesh::Of(8);
  const auto rule = *RuleOf(g_.graph(), g_.NodeOf(y));
  const Sharding s = Assignments(mesh, {2, 4, 1})[0];
  EXPECT_EQ(InputLayout(rule, s, 0).ToString(), "[a, bc]");
  EXPECT_EQ(InputLayout(rule, s, 1).ToString(), "[bc, -]");
  EXPECT_EQ(OutputLayout(rule, s, 0).ToString(), "[a, -] sum(bc)");
  EXPECT_EQ(ToString(StrategyOf(mesh, rule, s)), "((2,4),(4,1))");
}

}  // namespace
}  // namespace mslua
