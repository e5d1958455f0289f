// Plans for batches of several shapes over one store: each updates what the others have left.
#include "core/runtime/shaped_executable.h"

#include <vector>

#include "core/graph/builder.h"
#include "core/runtime/profile.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace mslua {
namespace {

using testing::HasSubstr;

// p becomes p + rate * sum of x; the loss is the sum of p * p and q * q.
Graph StepOn(int64_t rows, const char* updated = "p") {
  GraphBuilder g;
  const Value p = g.Input("p", kParameter, {DType::kF32, {2}}), q = g.Input("q", kParameter, {DType::kF32, {2}});
  const Value rate = g.Input("rate", kScalar, {DType::kF32, {}});
  const Value x = g.Input("x", kData, {DType::kF32, {rows, 2}});
  g.Output("loss", ReduceSum(g, Add(g, Mul(g, p, p), Mul(g, q, q)), {0}, false));
  g.Output("p", Add(g, p, Mul(g, ReduceSum(g, x, {0}, false), rate)), updated);
  return *g.Finish();
}

// The rows of x.
int64_t RowsOf(const Graph& graph) {
  for (const int32_t i : graph.Inputs()) {
    const Node& node = graph.nodes[static_cast<size_t>(i)];
    if (node.attrs.Str("name") == "x") return node.outputs[0].shape[0];
  }
  return 0;
}

TEST(ShapedExecutable, PlansShareTheStore) {
  Store store;
  store.Add("p", kParameter, {DType::kF32, {2}})->as<float>()[0] = 1;
  ASSERT_TRUE(store.Add("q", kParameter, {DType::kF32, {2}}).ok());
  std::vector<std::unique_ptr<Executable>> plans;
  for (const int64_t rows : {4, 1}) plans.push_back(*Executable::Compile(StepOn(rows), &store));
  const double flops[2] = {FlopsOf(*plans[0]), FlopsOf(*plans[1])};
  auto made = ShapedExecutable::Create(std::move(plans), {0.25, 0.75});
  ASSERT_TRUE(made.ok()) << made.status();
  ShapedExecutable& step = **made;
  EXPECT_EQ(ShapedOf(made->get()), &step);
  EXPECT_DOUBLE_EQ(FlopsOf(step), 0.25 * flops[0] + 0.75 * flops[1]);
  const std::vector<float> x = {1, 10, 1, 10, 1, 10, 1, 10};
  for (size_t i = 0; i < step.inputs().size(); ++i) {
    if (step.inputs()[i] == "x") step.BindInputAt(static_cast<int>(i), x.data());
    EXPECT_EQ(step.plan(1).inputs()[static_cast<size_t>(step.PositionIn(1, static_cast<int>(i)))], step.inputs()[i]);
  }
  ASSERT_TRUE(step.SetScalar("rate", 0.5).ok());
  const auto run = [&](int64_t shape) {
    step.Select(shape);
    EXPECT_EQ(RowsOf(step.graph()), shape == 0 ? 4 : 1);
    EXPECT_TRUE(step.Run().ok());
    return *step.Output(0).as<float>();
  };
  EXPECT_EQ(run(1), 1);
  EXPECT_EQ(run(0), 1.5f * 1.5f + 5 * 5);
  EXPECT_EQ(run(1), 3.5f * 3.5f + 25 * 25);
  const TensorView p = *store.Read(*store.Find("p"));
  EXPECT_EQ(p.as<float>()[0], 4);
  EXPECT_EQ(p.as<float>()[1], 30);
}

TEST(ShapedExecutable, RefusesPlansThatUpdateOtherTensors) {
  Store store;
  ASSERT_TRUE(store.Add("p", kParameter, {DType::kF32, {2}}).ok());
  ASSERT_TRUE(store.Add("q", kParameter, {DType::kF32, {2}}).ok());
  std::vector<std::unique_ptr<Executable>> plans;
  plans.push_back(*Executable::Compile(StepOn(4), &store));
  plans.push_back(*Executable::Compile(StepOn(2, "q"), &store));
  const Status status = ShapedExecutable::Create(std::move(plans), {0.5, 0.5}).status();
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("batches of shape 2 of 2 have \"output p updates q\" where the first have \"output p updates "
                        "p\""));
}

}  // namespace
}  // namespace mslua
