#include "core/runtime/profile.h"

#include <string>
#include <vector>

#include "core/graph/builder.h"
#include "gtest/gtest.h"

namespace mslua {
namespace {

// tanh(x w) over [64, 64], and its sum.
std::unique_ptr<Executable> Net(const std::vector<float>& data) {
  GraphBuilder g("net");
  const TensorType square = {DType::kF32, {64, 64}};
  const Value x = g.Input("x", kData, square), w = g.Input("w", kData, square);
  g.Output("sum", ReduceSum(g, g.Op("tanh", {g.Op("matmul", {x, w})}), {0, 1}, false));
  auto e = Executable::Compile(*g.Finish(), nullptr);
  EXPECT_TRUE(e.ok()) << e.status();
  EXPECT_TRUE((*e)->BindInput("x", data.data()).ok() && (*e)->BindInput("w", data.data()).ok());
  return *std::move(e);
}

TEST(Profile, EveryLaunchIsTimed) {
  const std::vector<float> ones(64 * 64, 1.0f);
  const auto e = Net(ones);
  const auto& launches = e->launches();
  ASSERT_EQ(launches.size(), 3u);
  EXPECT_EQ(e->graph().nodes[launches[0].first].op->name, "matmul");
  EXPECT_STREQ(launches[0].second, "onednn");
  std::vector<int64_t> timeline;
  e->SetTimeline(&timeline);
  for (int step = 0; step < 3; ++step) {
    ASSERT_TRUE(e->Run().ok());
    ASSERT_EQ(timeline.size(), launches.size() + 2);
    for (size_t i = 1; i < timeline.size(); ++i) EXPECT_GE(timeline[i], timeline[i - 1]);
  }
  e->SetTimeline(nullptr);
  timeline.clear();
  ASSERT_TRUE(e->Run().ok());
  EXPECT_TRUE(timeline.empty());
}

// A product large enough for a processor's tiles, where it has them.
TEST(Profile, VectorProductsLeaveTilesAlone) {
  GraphBuilder g("net");
  const TensorType square = {DType::kF32, {256, 256}};
  g.Output("y", g.Op("matmul", {g.Input("x", kData, square), g.Input("w", kData, square)}));
  const auto graph = g.Finish();
  ASSERT_TRUE(graph.ok()) << graph.status();
  CompileOptions options;
  options.vector_products = true;
  const auto e = Executable::Compile(*graph, nullptr, options);
  ASSERT_TRUE(e.ok()) << e.status();
  EXPECT_STRNE((*e)->launches()[0].second, "bf16x3");
}

TEST(Profile, PiecesOfTheWorkspaceThatLiveTogetherAreApart) {
  const std::vector<float> ones(64 * 64, 1.0f);
  const auto e = Net(ones);
  const std::vector<ArenaEntry>& arena = e->arena();
  ASSERT_FALSE(arena.empty());
  for (const ArenaEntry& a : arena) {
    const auto [node, output, offset, bytes, first, last] = a;
    EXPECT_LE(offset + bytes, e->report().workspace_bytes);
    EXPECT_LE(first, last);
    EXPECT_EQ(first, node);
    EXPECT_GE(output, -1);
  }
}

TEST(Profile, TheReportNamesOperatorsAndTheirShare) {
  const std::vector<float> ones(64 * 64, 1.0f);
  const auto e = Net(ones);
  int64_t steps = 0;
  const auto step = [&] {
    ++steps;
    return e->Run();
  };
  testing::internal::CaptureStdout();
  const std::string trace = testing::TempDir() + "/trace.json";
  ASSERT_TRUE(ReportProfile(e.get(), step, 5, /*steps_only=*/false, /*json=*/false, trace).ok());
  const std::string report = testing::internal::GetCapturedStdout();
  EXPECT_GE(steps, 11);  // one first, five and five
  for (const char* word : {"matmul", "onednn", "GFLOP/s", "step "})
    EXPECT_NE(report.find(word), std::string::npos) << report;
  std::FILE* f = std::fopen(trace.c_str(), "r");
  ASSERT_NE(f, nullptr);
  std::string text(1 << 16, '\0');
  text.resize(std::fread(&text[0], 1, text.size(), f));
  std::fclose(f);
  EXPECT_NE(text.find("matmul"), std::string::npos) << text;
}

}  // namespace
}  // namespace mslua
