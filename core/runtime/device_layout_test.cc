// Steps of devices as data: random graphs with random collectives, and plans of devices that are not here.
#include "core/runtime/device_layout.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <random>

#include "absl/strings/str_cat.h"
#include "core/graph/builder.h"
#include "core/passes/passes.h"
#include "core/passes/run_passes.h"
#include "core/runtime/placed_graph.h"

namespace mslua {
namespace {

class RandomGraph {
 public:
  explicit RandomGraph(std::mt19937* random) : random_(random) {}

  StatusOr<Graph> Make() {
    const TensorType large = {DType::kF32, {16, 96}}, small = {DType::kF32, {4, 8}};
    values_ = {g_.Input("x", kData, large), g_.Input("small", kData, small), g_.Input("w", kParameter, large)};
    const Value lr = g_.Input("lr", kScalar, {DType::kF32, {}});
    const int nodes = 3 + Below(25);
    for (int i = 0; i < nodes; ++i) Node();
    while (!started_.empty()) WaitForOne();
    g_.Output("y", values_.back());
    g_.Output("loss", g_.Op("reduce_sum", {values_.back()}));
    g_.Output("w", Sub(g_, values_[2], Mul(g_, values_[2], lr)), "w");
    return g_.Finish();
  }

 private:
  int Below(int n) { return static_cast<int>((*random_)() % static_cast<unsigned>(n)); }
  Value Any() { return values_[static_cast<size_t>(Below(static_cast<int>(values_.size())))]; }
  void Add(Value v) { values_.push_back(v); }
  void WaitForOne() {
    const size_t at = static_cast<size_t>(Below(static_cast<int>(started_.size())));
    for (const Value v : g_.OpMulti("all_reduce_wait", started_[at], plain_)) Add(v);
    started_.erase(started_.begin() + static_cast<std::ptrdiff_t>(at));
  }
  void Node() {
    const Value x = Any();
    const bool matrix = g_.graph().TypeOf(x).shape.size() == 2;
    switch (Below(matrix ? 10 : 4)) {
      case 0:
        return Add(g_.Op("tanh", {x}));
      case 1:
        return Add(Mul(g_, x, x));
      case 2:
        started_.push_back(g_.OpMulti("all_reduce_start", {x, g_.Op("tanh", {Any()})}, plain_));
        return;
      case 3:
        if (started_.empty()) return Add(g_.Op("softmax", {x}));
        return WaitForOne();
      case 4:
        return Add(g_.Op("all_reduce", {x}, {{"group", kTwo}, {"op", std::string("sum")}}));
      case 5: {
        const Value all = g_.Op("all_gather", {x}, {{"group", kTwo}, {"axis", int64_t{Below(2)}}});
        return Add(g_.Op("reduce_scatter", {all}, {{"group", kTwo}, {"axis", int64_t{Below(2)}}}));
      }
      case 6:
        return Add(g_.Op("all_to_all", {x},
                         {{"group", kTwo}, {"split_axis", int64_t{Below(2)}}, {"concat_axis", int64_t{Below(2)}}}));
      case 7:
        return Add(g_.Op("broadcast", {x}, {{"group", kTwo}, {"root", int64_t{Below(2)}}}));
      case 8:
        return Add(g_.Op("reduce", {x}, {{"group", kTwo}, {"root", int64_t{Below(2)}}}));
      default:
        return Add(g_.Op("reduce_sum", {x}, {{"axis", std::vector<int64_t>{0}}}));
    }
  }

  const std::vector<int64_t> kTwo = {0, 1};
  const Attrs plain_ = {{"group", kTwo}};
  std::mt19937* random_;
  GraphBuilder g_;
  std::vector<Value> values_;
  std::vector<std::vector<Value>> started_;
};

TEST(DeviceSteps, OfRandomGraphsAreOrderedAndNoWaitCanBeLeftOut) {
  constexpr int kGraphs = 500;
  std::mt19937 random(3);
  int made = 0, calls = 0, waits = 0, reported = 0;
  for (int draw = 0; made < kGraphs; ++draw) {
    ASSERT_LT(draw, 20 * kGraphs);
    const auto graph = RandomGraph(&random).Make();
    if (!graph.ok()) continue;
    ++made;
    std::vector<int64_t> scratch(graph->nodes.size(), 0);
    std::vector<bool> over_nccl(graph->nodes.size(), false);
    for (size_t i = 0; i < graph->nodes.size(); ++i) {
      const Node& n = graph->nodes[i];
      over_nccl[i] = n.attrs.Has("group") && RunsOverNccl(*graph, n);
      if (over_nccl[i]) {
        const auto [in, out] = BlocksOf(*graph, n);
        scratch[i] = in + out;
      } else if (n.op->name == "softmax") {
        scratch[i] = 256;
      }
    }
    const DeviceLayout layout = LayOut(*graph, scratch);
    const auto steps = StepsOf(*graph, layout, over_nccl);
    ASSERT_TRUE(steps.ok()) << steps.status() << "\n" << ToString(*graph);
    for (const DeviceWork& w : steps->works) calls += w.kind == DeviceWork::kCall;
    for (size_t w = 0; w < steps->schedule.size(); ++w) {
      for (size_t k = 0; k < steps->schedule[w].size(); ++k) {
        StepSchedule without = steps->schedule;
        without[w].erase(without[w].begin() + static_cast<std::ptrdiff_t>(k));
        ++waits;
        reported += !VerifySchedule(steps->touched, without).ok();
      }
    }
  }
  std::printf("%d graphs, %d calls of NCCL, %d waits; each left out: %d reported\n", made, calls, waits, reported);
  EXPECT_EQ(reported, waits);
  EXPECT_GT(calls, 1000);
  EXPECT_GT(waits, 1000);
}

struct Updates {
  Graph graph;
  DeviceSteps steps;
  int64_t table_bytes = 0;
};
// w -= lr softmax(w) for four tensors; `chained`: the last one's gradient is that of what the third has become.
StatusOr<Updates> MakeUpdates(bool alone, bool chained) {
  GraphBuilder g;
  const Value lr = g.Input("lr", kScalar, {DType::kF32, {}});
  Value last;
  for (const Shape& shape : {Shape{3, 7}, Shape{64}, Shape{5000}, Shape{10}}) {
    const std::string name = absl::StrCat("w", shape[0]);
    const Value w = g.Input(name, kParameter, {DType::kF32, shape});
    Value of = w;
    if (chained && shape[0] == 10) of = Reshape(g, ReduceSum(g, Reshape(g, last, {500, 10}), {0}, false), {10});
    last = Sub(g, w, Mul(g, g.Op("softmax", {of}), lr));
    g.Output(absl::StrCat("new ", name), last, name);
  }
  ASSIGN_OR_RETURN(const Graph made, g.Finish());
  Updates u;
  ASSIGN_OR_RETURN(u.graph, RunPassesForDevice(made, {}));
  const size_t nodes = u.graph.nodes.size();
  const DeviceLayout layout = LayOut(u.graph, std::vector<int64_t>(nodes, 0), alone ? 256 : 0);
  u.table_bytes = layout.tables < 0 ? 0 : layout.bytes - layout.tables;
  ASSIGN_OR_RETURN(u.steps, StepsOf(u.graph, layout, std::vector<bool>(nodes, false)));
  return u;
}

TEST(DeviceSteps, UpdatesOfARuleAreOneWork) {
  const auto made = MakeUpdates(false, false);
  ASSERT_TRUE(made.ok()) << made.status();
  ASSERT_EQ(made->steps.updates.size(), 1u) << ToString(made->graph);
  const DeviceUpdates& updates = made->steps.updates.begin()->second;
  EXPECT_EQ(updates.nodes.size(), 4u);
  EXPECT_EQ(updates.blocks, 5);  // two of the tensor that is larger than a part
  EXPECT_LE(4 * 5 * 8 + updates.blocks * 8, made->table_bytes);
  int nodes = 0;
  for (size_t w = 0; w < made->steps.works.size(); ++w) {
    nodes += made->steps.works[w].kind == DeviceWork::kNode;
    if (made->steps.works[w].kind != DeviceWork::kUpdates) continue;
    EXPECT_EQ(made->steps.works[w].of, updates.nodes.back());
    // It writes the four tensors of the store.
    int written = 0;
    for (const MemoryRange& r : made->steps.touched[w].touched) written += r.space > 0 && r.written;
    EXPECT_EQ(written, 4);
  }
  EXPECT_EQ(nodes, 4);
}

TEST(DeviceSteps, AnUpdateThatNeedsAnotherOneComesAfterIt) {
  const auto made = MakeUpdates(false, true);
  ASSERT_TRUE(made.ok()) << made.status();
  ASSERT_EQ(made->steps.updates.size(), 1u) << ToString(made->graph);
  EXPECT_EQ(made->steps.updates.begin()->second.nodes.size(), 3u);
}

TEST(DeviceSteps, UpdatesAreAloneWhereLaunchesAreChecked) {
  const auto made = MakeUpdates(true, false);
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_TRUE(made->steps.updates.empty());
  EXPECT_EQ(made->table_bytes, 0);
}

TEST(DeviceSteps, LargeInputsAreCopiedAheadAndSmallOnesAreNot) {
  GraphBuilder g;
  const Value x = g.Input("x", kData, {DType::kF32, {64, 64}}), b = g.Input("b", kData, {DType::kF32, {64, 4}});
  g.Output("y", g.Op("matmul", {x, b}));
  const auto made = g.Finish();
  ASSERT_TRUE(made.ok()) << made.status();
  const Graph& graph = *made;
  const DeviceLayout layout = LayOut(graph, std::vector<int64_t>(graph.nodes.size(), 0));
  EXPECT_TRUE(layout.inputs[0].staged());
  EXPECT_FALSE(layout.inputs[1].staged());
  const auto steps = StepsOf(graph, layout, std::vector<bool>(graph.nodes.size(), false));
  ASSERT_TRUE(steps.ok()) << steps.status();
  // The copy waits for the step before the last, which took its stage; the move for the copy.
  ASSERT_EQ(steps->works[0].kind, DeviceWork::kInput);
  ASSERT_EQ(steps->works[1].kind, DeviceWork::kMove);
  EXPECT_EQ(steps->touched[0].lane, Lane::kCopy);
  EXPECT_EQ(steps->schedule[0], (std::vector<WorkEnd>{{1, 2}}));
  EXPECT_EQ(steps->schedule[1], (std::vector<WorkEnd>{{0, 0}}));
}

TEST(DevicePlan, CountsWorkspacesAndLaunches) {
  GraphBuilder g;
  const Value x = g.Input("x", kData, {DType::kBF16, {512, 256}}),
              w = g.Input("w", kParameter, {DType::kBF16, {256, 128}});
  g.Output("y", g.Op("tanh", {g.Op("matmul", {x, w})}));
  const auto graph = g.Finish();
  ASSERT_TRUE(graph.ok()) << graph.status();
  const auto plan = PlanOnDevice(*graph);
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->launches.size(), 2u);
  EXPECT_EQ(plan->launches[0].second, 1);
  EXPECT_EQ(plan->report.store_bytes, 256 * 128 * 2);
  // The product and its workspace, 16 bytes for each of its elements.
  EXPECT_EQ(plan->report.workspace_bytes, 512 * 128 * (2 + 16));
  EXPECT_GT(plan->device_bytes, plan->report.workspace_bytes + plan->report.store_bytes + 3 * 512 * 256 * 2);
}

}  // namespace
}  // namespace mslua
