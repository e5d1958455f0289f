// The order 1F1B, and the stages of a small graph. That pipelines train as one rank does: lua/pipeline_test.cc.
#include "core/sharding/pipeline.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/graph/builder.h"
#include "gtest/gtest.h"

namespace mslua {
namespace {

std::string Text(int64_t stages, int64_t stage, int64_t micros, bool backward = true) {
  std::string text;
  for (const MicroStep& s : MicroSchedule(stages, stage, micros, backward))
    absl::StrAppend(&text, text.empty() ? "" : " ", s.backward ? "b" : "f", s.micro);
  return text;
}

TEST(Pipeline, OneForwardOneBackward) {
  EXPECT_EQ(Text(3, 0, 4), "f0 f1 f2 b0 f3 b1 b2 b3");
  EXPECT_EQ(Text(3, 1, 4), "f0 f1 b0 f2 b1 f3 b2 b3");
  EXPECT_EQ(Text(3, 2, 4), "f0 b0 f1 b1 f2 b2 f3 b3");
  EXPECT_EQ(Text(3, 0, 4, false), "f0 f1 f2 f3");
  EXPECT_EQ(Text(1, 0, 2), "f0 b0 f1 b1");
}

// A stage has no more micro-batches under way than there are stages from it on.
TEST(Pipeline, KeepsFewMicroBatches) {
  for (int64_t stages : {2, 4, 7}) {
    for (int64_t stage = 0; stage < stages; ++stage) {
      int64_t kept = 0, most = 0;
      for (const MicroStep& s : MicroSchedule(stages, stage, 12, true)) {
        kept += s.backward ? -1 : 1;
        most = std::max(most, kept);
      }
      EXPECT_EQ(kept, 0);
      EXPECT_EQ(most, stages - stage);
    }
  }
}

TEST(Pipeline, Bubble) {
  EXPECT_DOUBLE_EQ(PipelineBubble(2, 4), 0.2);
  EXPECT_DOUBLE_EQ(PipelineBubble(1, 4), 0);
}

// x -> relu (stage 0) -> matmul with w (stage 1) -> tanh of no cell; w is scaled outside of cells.
struct Small {
  GraphBuilder g;
  StageTrace trace;
  Value x, w, a, scaled, b, c;

  Small() {
    x = g.Input("x", kData, {DType::kF32, {4, 4}});
    w = g.Input("w", kParameter, {DType::kF32, {4, 4}});
    a = g.Op("relu", {x});
    scaled = Mul(g, w, 2);
    b = g.Op("matmul", {a, scaled});
    c = g.Op("tanh", {b});
    g.Output("y", c);
    trace.stages = 2;
    trace.cells.assign(g.graph().nodes.size(), kNoStage);
    trace.cells[a.node] = 0;
    trace.cells[b.node] = 1;
    trace.blocks = {{0, static_cast<int32_t>(g.graph().nodes.size()), 0, false}};
  }
};

TEST(Pipeline, StagesFollow) {
  const Small s;
  const auto stages = StagesOf(s.g.graph(), s.trace, {});
  ASSERT_TRUE(stages.ok()) << stages.status();
  EXPECT_EQ((*stages)[s.x.node], kNoStage);
  EXPECT_EQ((*stages)[s.w.node], 1);
  EXPECT_EQ((*stages)[s.scaled.node], 1);
  EXPECT_EQ((*stages)[s.c.node], 1);
  EXPECT_EQ(OwnersOf(s.g.graph(), *stages), (StageOwners{{"w", 1}}));
}

TEST(Pipeline, AStageHasItsNodesAndItsMessages) {
  const Small s;
  const auto stages = StagesOf(s.g.graph(), s.trace, {});
  const auto count = [](const Graph& graph, const std::string& op) {
    return std::count_if(graph.nodes.begin(), graph.nodes.end(), [&](const Node& n) { return n.op->name == op; });
  };
  const std::vector<int64_t> column{1, 3};
  for (int stage : {0, 1}) {
    auto program = StageProgram(s.g.graph(), s.trace, *stages, stage, column);
    ASSERT_TRUE(program.ok()) << program.status();
    PlaceMessages(&*program);
    ASSERT_TRUE(Verify(*program).ok()) << Verify(*program) << ToString(*program);
    EXPECT_EQ(count(*program, "relu"), 1 - stage);
    EXPECT_EQ(count(*program, "matmul"), stage);
    EXPECT_EQ(count(*program, "stage_send"), 1 - stage);
    EXPECT_EQ(count(*program, "stage_sent"), 1 - stage);
    EXPECT_EQ(count(*program, "stage_recv"), stage);
    EXPECT_EQ(program->FindInput("w") >= 0, stage == 1);
    EXPECT_EQ(count(*program, "broadcast"), 1);
  }
}

TEST(Pipeline, AStageFeedsLaterOnesOnly) {
  Small s;
  std::swap(s.trace.cells[s.a.node], s.trace.cells[s.b.node]);
  const Status status = StagesOf(s.g.graph(), s.trace, {}).status();
  EXPECT_NE(status.message().find("is of pipeline stage 0 and reads what"), status.message().npos) << status;
}

}  // namespace
}  // namespace mslua
