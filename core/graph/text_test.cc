#include <random>

#include "core/graph/builder.h"
#include "core/graph/graph.h"
#include "gtest/gtest.h"

namespace mslua {
namespace {

Graph Example() {
  GraphBuilder g("net");
  g.SetLocation(std::make_shared<Location>(Location{"Net", "recipes/quickstart.lua", 21, "matmul"}));
  const Value x = g.Input("x", kData, {DType::kF32, {8, 32}}), w = g.Input("w", kParameter, {DType::kF32, {32, 16}});
  const Value y = Add(g, g.Op("matmul", {x, w}), g.Constant(0.5, DType::kF32));
  g.Output("y", y);
  g.Output("w", g.Op("tanh", {w}), "w");
  return *g.Finish();
}

TEST(Text, RoundTrips) {
  const Graph graph = Example();
  const std::string text = ToString(graph);
  auto parsed = ParseGraph(text);
  ASSERT_TRUE(parsed.ok()) << parsed.status() << "\n" << text;
  EXPECT_EQ(ToString(*parsed), text);
  EXPECT_EQ(Fingerprint(*parsed), Fingerprint(graph));
  EXPECT_NE(text.find("%3: f32[8,16] = matmul(%x, %w) {transpose_a=false, transpose_b=false}  # Net {instance name: "
                      "matmul} @ recipes/quickstart.lua:21"),
            text.npos)
      << text;
}

TEST(Text, NamesTheLineOfAnError) {
  EXPECT_EQ(ParseGraph("graph g {\n  %0: f32[2] = no_such_op()\n}").status().message(),
            "IR line 2: unknown operator 'no_such_op'");
  EXPECT_EQ(ParseGraph("graph g {\n  %0: f32[2] = tanh(%9)\n}").status().message(), "IR line 2: undefined value %9");
  EXPECT_FALSE(ParseGraph("").ok());
}

TEST(Text, MutatedTextNeverCrashes) {
  const std::string text = ToString(Example());
  std::mt19937 random(1);
  for (int i = 0; i < 3000; ++i) {
    std::string t = text;
    for (int k = 0; k < 3; ++k) {
      const size_t at = random() % t.size();
      switch (random() % 3) {
        case 0:
          t[at] = static_cast<char>(random());
          break;
        case 1:
          t.erase(at, random() % 8);
          break;
        default:
          t.insert(at, t.substr(random() % t.size(), random() % 8));
      }
      if (t.empty()) t = "x";
    }
    const auto parsed = ParseGraph(t);
    if (parsed.ok()) {
      const std::string again = ToString(*parsed);
      const auto second = ParseGraph(again);
      ASSERT_TRUE(second.ok()) << second.status() << again;
      EXPECT_EQ(ToString(*second), again);
    }
  }
}

TEST(Builder, KeepsTheFirstErrorWithItsLine) {
  GraphBuilder g;
  const Value x = g.Input("x", kData, {DType::kF32, {8, 32}}), w = g.Input("w", kData, {DType::kF32, {16, 16}});
  g.SetLocation(std::make_shared<Location>(Location{"Net", "quickstart.lua", 20, ""}));
  g.Op("tanh", {g.Op("matmul", {x, w})});
  EXPECT_EQ(g.status().message(),
            "quickstart.lua:20: MatMul: x is f32[8,32] and w is f32[16,16]: size of 'k' differs: dimension 2 of x is "
            "32, dimension 1 of w is 16");
}

}  // namespace
}  // namespace mslua
