#include "core/op/attrs.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "gtest/gtest.h"

namespace mslua {
namespace {

TEST(Attrs, TextReadsBackBitForBit) {
  const AttrValue values[] = {true,
                              false,
                              int64_t{0},
                              int64_t{-7},
                              std::numeric_limits<int64_t>::min(),
                              0.5,
                              -0.0,
                              1e300,
                              5e-324,
                              3.0,
                              std::numeric_limits<double>::infinity(),
                              -std::numeric_limits<double>::infinity(),
                              std::string(""),
                              std::string("same"),
                              std::string("a \"b\"\\\n\0\xff", 9),
                              std::vector<int64_t>{},
                              std::vector<int64_t>{1, -2, 3},
                              DType::kBF16};
  for (const AttrValue& v : values) {
    const auto back = ParseAttrValue(AttrText(v));
    ASSERT_TRUE(back.ok()) << AttrText(v) << ": " << back.status();
    EXPECT_EQ(back->index(), v.index()) << AttrText(v);
    EXPECT_EQ(AttrText(*back), AttrText(v));
    EXPECT_TRUE(*back == v) << AttrText(v);
  }
  const auto minus_zero = ParseAttrValue(AttrText(AttrValue(-0.0)));
  EXPECT_TRUE(std::signbit(std::get<double>(*minus_zero)));
  EXPECT_TRUE(std::isnan(std::get<double>(*ParseAttrValue(AttrText(AttrValue(std::nan("")))))));
}

TEST(Attrs, RandomDoublesReadBack) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 20000; ++i) {
    const uint64_t bits = random();
    double d;
    std::memcpy(&d, &bits, sizeof d);
    if (std::isnan(d)) continue;
    const auto back = ParseAttrValue(AttrText(AttrValue(d)));
    ASSERT_TRUE(back.ok());
    EXPECT_EQ(std::get<double>(*back), d);
  }
}

TEST(Attrs, BadTextIsRefused) {
  for (const char* text : {"", "tru", "1x", "[1,", "[1,a]", "\"open", "f33", "--1", "99999999999999999999"}) {
    EXPECT_FALSE(ParseAttrValue(text).ok()) << text;
  }
}

TEST(Attrs, MutatedTextNeverCrashes) {
  std::mt19937 random(3);
  const std::string texts[] = {"[1,-2,345]", "\"a \\\"b\\\" \\n\"", "-1.5e-300", "bf16"};
  for (int i = 0; i < 20000; ++i) {
    std::string t = texts[i % 4];
    for (int k = 0; k < 2; ++k) t[random() % t.size()] = static_cast<char>(random());
    const auto v = ParseAttrValue(t);
    if (v.ok()) {
      EXPECT_TRUE(ParseAttrValue(AttrText(*v)).ok()) << t;
    }
  }
}

TEST(Attrs, KeepTheOrderOfDefinition) {
  Attrs a = {{"x", int64_t{1}}, {"y", 2.0}};
  a.Set("z", true).Set("x", int64_t{5});
  EXPECT_EQ(a.items()[0].first, "x");
  EXPECT_EQ(a.Int("x"), 5);
  EXPECT_EQ(a.items()[2].first, "z");
  a.Erase("y");
  EXPECT_FALSE(a.Has("y"));
  EXPECT_EQ(a.items().size(), 2u);
}

}  // namespace
}  // namespace mslua
