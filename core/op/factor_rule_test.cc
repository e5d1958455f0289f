#include "core/op/factor_rule.h"

#include <random>

#include "gtest/gtest.h"

namespace mslua {
namespace {

FactorRule Parse(const std::string& text, const std::vector<int64_t>& ranks) {
  const auto rule = ParseFactorRule(text, ranks);
  EXPECT_TRUE(rule.ok()) << rule.status();
  return rule.ok() ? *rule : FactorRule();
}
std::string ErrorOf(const std::string& text, const std::vector<int64_t>& ranks) {
  return std::string(ParseFactorRule(text, ranks).status().message());
}

TEST(FactorRule, Matmul) {
  const FactorRule r = Parse("*b i k, *b k j -> *b i j", {4, 4});
  EXPECT_EQ(r.factors.size(), 5u);
  EXPECT_TRUE(r.factors[r.Find("k")].reduced());
  EXPECT_FALSE(r.factors[r.Find("b0")].reduced());
  EXPECT_EQ(r.outputs[0].size(), 4u);
  EXPECT_EQ(r.outputs[0][1][0], r.Find("b1"));
  EXPECT_EQ(r.reduction, Reduction::kSum);
  EXPECT_EQ(Parse("*b i k, *b k j -> *b i j", {2, 2}).factors.size(), 3u);
}

TEST(FactorRule, WholeOnesAndCompounds) {
  const FactorRule r = Parse("n (!h c) -> n h !c {max}", {2});
  EXPECT_EQ(r.inputs[0][1].size(), 2u);
  EXPECT_TRUE(r.factors[r.Find("h")].whole);
  EXPECT_TRUE(r.factors[r.Find("c")].whole);
  EXPECT_FALSE(r.factors[r.Find("n")].whole);
  EXPECT_EQ(r.reduction, Reduction::kMax);
}

TEST(FactorRule, ScalarsAndNoInputs) {
  EXPECT_EQ(Parse("*r, -> *r", {2, 0}).inputs[1].size(), 0u);
  EXPECT_EQ(Parse(" -> d", {0}).outputs[0].size(), 1u);
  const FactorRule r = Parse("-> n", {});
  EXPECT_TRUE(r.inputs.empty());
  EXPECT_FALSE(r.factors[0].in_input);
}

TEST(FactorRule, Errors) {
  EXPECT_EQ(ErrorOf("a b", {2}), "rule 'a b': no '->'");
  EXPECT_EQ(ErrorOf("a -> a", {1, 1}), "rule 'a -> a': describes 1 inputs, there are 2");
  EXPECT_EQ(ErrorOf("a b -> a", {3}), "input 0 has 3 dimensions, expected 2");
  EXPECT_EQ(ErrorOf("*b i k, *b k j -> *b i j", {1, 2}), "input 0 has 1 dimension, expected at least 2");
  EXPECT_EQ(ErrorOf("*b i k, *b k j -> *b i j", {3, 2}), "input 1 has 0 leading dimensions where another input has 1");
  EXPECT_EQ(ErrorOf("a -> a {mean}", {1}), "rule 'a -> a {mean}': unknown reduction");
  EXPECT_FALSE(ParseFactorRule("(a -> a", {1}).ok());
  EXPECT_FALSE(ParseFactorRule("*a *b -> *a", {2}).ok());
  EXPECT_EQ(ErrorOf("a ! -> a", {2}), "input 0 '!' without a name");
  EXPECT_EQ(ErrorOf("a -> a *b", {1}), "rule 'a -> a *b': no input has '*b'");
}

TEST(FactorSizes, NamesBothPlacesThatDiffer) {
  const FactorRule r = Parse("i k, k j -> i j", {2, 2});
  const auto sizes = FactorSizes(r, {{8, 32}, {32, 16}}, {"x", "w"});
  ASSERT_TRUE(sizes.ok());
  EXPECT_EQ((*sizes)[r.Find("k")], 32);
  EXPECT_EQ(FactorSizes(r, {{8, 32}, {16, 16}}, {"x", "w"}).status().message(),
            "size of 'k' differs: dimension 2 of x is 32, dimension 1 of w is 16");
}

TEST(FactorSizes, CompoundsSayWhatIsLeft) {
  const FactorRule r = Parse("(i j), j -> i j", {1, 1});
  const auto sizes = FactorSizes(r, {{12}, {4}}, {});
  ASSERT_TRUE(sizes.ok());
  EXPECT_EQ((*sizes)[r.Find("i")], 3);
  EXPECT_EQ((*FactorSizes(Parse("(i j) -> i j", {1}), {{12}}, {}))[0], -1);
}

TEST(FactorSizes, RefusesCompoundsThatDoNotDivide) {
  EXPECT_EQ(FactorSizes(Parse("(i j), j -> i j", {1, 1}), {{10}, {4}}, {"x", "y"}).status().message(),
            "dimension 1 of x is 10, not a multiple of 4");
  EXPECT_EQ(FactorSizes(Parse("(i j), j, i -> i j", {1, 1, 1}), {{12}, {4}, {2}}, {"x", "y", "z"}).status().message(),
            "dimension 1 of x is 12, but its factors multiply to 8");
}

TEST(FactorSizes, LiteralOne) {
  EXPECT_EQ(FactorSizes(Parse("n 1 -> n", {2}), {{4, 2}}, {"x"}).status().message(),
            "dimension 2 of x is 2, expected 1");
}

TEST(FactorRule, MutatedTextNeverCrashes) {
  std::mt19937 random(1);
  const std::string texts[] = {"*b i k, *b k j -> *b i j", "n (!h c), 1 d -> n h !c, d {max}"};
  for (int i = 0; i < 20000; ++i) {
    std::string t = texts[i % 2];
    for (int k = 0; k < 3; ++k) {
      const size_t at = random() % t.size();
      switch (random() % 3) {
        case 0:
          t[at] = "*!()1,->{} abc\xff"[random() % 15];
          break;
        case 1:
          t.erase(at, 1 + random() % 3);
          break;
        default:
          t.insert(at, t.substr(random() % t.size(), 3));
      }
      if (t.empty()) t = "-";
    }
    const auto rule = ParseFactorRule(t, {3, 2});
    if (rule.ok()) (void)FactorSizes(*rule, {{2, 3, 4}, {4, 5}}, {"x", "w"});
  }
}

}  // namespace
}  // namespace mslua
