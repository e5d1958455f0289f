#include "core/autodiff/gradient.h"

#include <algorithm>
#include <cmath>

#include "core/graph/testing/evaluate.h"
#include "core/op/marks.h"
#include "gtest/gtest.h"

namespace mslua {
namespace {

std::string Bytes(const std::vector<double>& v) {
  return std::string(reinterpret_cast<const char*>(v.data()), v.size() * sizeof(double));
}
std::vector<double> Doubles(const std::string& s) {
  std::vector<double> v(s.size() / sizeof(double));
  std::memcpy(v.data(), s.data(), s.size());
  return v;
}

// d/dx tanh(tanh(x) + x) twice, against the formulas.
TEST(Gradient, FirstAndSecondOrderOfAScalar) {
  GraphBuilder g;
  const Value x = g.Input("x", kData, {DType::kF64, {}});
  const Value t = g.Op("tanh", {x});
  const Value y = g.Op("tanh", {g.Op("add", {t, x})});
  auto first = Gradients(g, y, {x});
  ASSERT_TRUE(first.ok()) << first.status();
  auto second = Gradients(g, (*first)[0], {x});
  ASSERT_TRUE(second.ok()) << second.status();
  g.Output("dy", (*first)[0]);
  g.Output("d2y", (*second)[0]);
  auto graph = g.Finish();
  ASSERT_TRUE(graph.ok());
  ASSERT_TRUE(Verify(*graph).ok()) << Verify(*graph);
  const double at = 0.3;
  auto out = EvaluateReference(*graph, {Bytes({at})});
  ASSERT_TRUE(out.ok()) << out.status();
  const auto f = [](double v) { return std::tanh(std::tanh(v) + v); };
  const double h = 1e-4;
  EXPECT_NEAR(Doubles((*out)[0])[0], (f(at + h) - f(at - h)) / (2 * h), 1e-7);
  EXPECT_NEAR(Doubles((*out)[1])[0], (f(at + h) - 2 * f(at) + f(at - h)) / (h * h), 1e-6);
}

// tanh(x) whose gradient is said to be dy * x * x.
Value SquareSlope(GraphBuilder& g, Value x, CustomGradients* custom) {
  CustomGradient part;
  part.name = "Part";
  part.inputs = {x};
  part.outputs = {g.Op("stop_gradient", {g.Op("tanh", {g.Op("stop_gradient", {x})})})};
  part.gradient = [&g, x](absl::Span<const Value> dy) -> StatusOr<std::vector<Value>> {
    return std::vector<Value>{Mul(g, dy[0], Mul(g, x, x))};
  };
  custom->push_back(std::make_shared<const CustomGradient>(std::move(part)));
  return custom->back()->outputs[0];
}

// z = 3 * part(x) + x * x: dz = 3 * x^2 + 2 x, d2z = 6 x + 2.
TEST(Gradient, ThatAUserGives) {
  GraphBuilder g;
  CustomGradients custom;
  const Value x = g.Input("x", kData, {DType::kF64, {}});
  const Value z = Add(g, Mul(g, SquareSlope(g, x, &custom), 3), Mul(g, x, x));
  auto first = Gradients(g, z, {x}, Value(), /*mark_origin=*/true, nullptr, &custom);
  ASSERT_TRUE(first.ok()) << first.status();
  auto second = Gradients(g, (*first)[0], {x}, Value(), false, nullptr, &custom);
  ASSERT_TRUE(second.ok()) << second.status();
  for (const Value v : {z, (*first)[0], (*second)[0]}) g.Output("out", v);
  const int64_t origin = custom[0]->outputs[0].node;
  EXPECT_TRUE(std::any_of(g.graph().nodes.begin(), g.graph().nodes.end(), [origin](const Node& n) {
    const int64_t* of = mark::kOrigin.Find(n.attrs);
    return of != nullptr && *of == origin;
  }));
  auto graph = g.Finish();
  ASSERT_TRUE(graph.ok());
  const double at = 0.3;
  auto out = EvaluateReference(*graph, {Bytes({at})});
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_NEAR(Doubles((*out)[0])[0], 3 * std::tanh(at) + at * at, 1e-15);
  EXPECT_NEAR(Doubles((*out)[1])[0], 3 * at * at + 2 * at, 1e-15);
  EXPECT_NEAR(Doubles((*out)[2])[0], 6 * at + 2, 1e-15);
}

TEST(Gradient, ThatAUserGivesIsAskedForWhereOneFlows) {
  GraphBuilder g;
  CustomGradients custom;
  const Value x = g.Input("x", kData, {DType::kF64, {}});
  const size_t nodes = (SquareSlope(g, x, &custom), g.graph().nodes.size());
  std::vector<bool> flows;
  auto d = Gradients(g, x, {x}, Value(), false, &flows, &custom);
  ASSERT_TRUE(d.ok()) << d.status();
  EXPECT_LE(g.graph().nodes.size(), nodes + 1);  // the seed
  EXPECT_EQ(flows, std::vector<bool>{true});
}

TEST(Gradient, ThatAUserGivesLosesNoOther) {
  GraphBuilder g;
  CustomGradients custom;
  const Value x = g.Input("x", kData, {DType::kF64, {}}), w = g.Input("w", kParameter, {DType::kF64, {}});
  CustomGradient part;
  part.name = "Part";
  part.inputs = {x};
  const Value product = Mul(g, g.Op("stop_gradient", {x}), w);
  part.outputs = {g.Op("stop_gradient", {product})};
  part.reads = {{w, product.node}};
  part.gradient = [](absl::Span<const Value> dy) -> StatusOr<std::vector<Value>> { return std::vector<Value>{dy[0]}; };
  custom.push_back(std::make_shared<const CustomGradient>(std::move(part)));
  const Value y = custom[0]->outputs[0];
  EXPECT_TRUE(Gradients(g, y, {x}, Value(), false, nullptr, &custom).ok());
  const Status lost = Gradients(g, y, {x, w}, Value(), false, nullptr, &custom).status();
  EXPECT_EQ(lost.message().substr(0, 79),
            "Part: construct reads the parameter 'w', f64[], whose gradient is asked for: bp");
}

TEST(Gradient, OfAValueThatIsNotUsedIsZero) {
  GraphBuilder g;
  const Value x = g.Input("x", kData, {DType::kF32, {}}), z = g.Input("z", kData, {DType::kF32, {2}});
  auto d = Gradients(g, g.Op("tanh", {x}), {x, z});
  ASSERT_TRUE(d.ok());
  EXPECT_EQ(g.TypeOf((*d)[1]), (TensorType{DType::kF32, {2}}));
}

TEST(Gradient, NeedsAScalarOrASeed) {
  GraphBuilder g;
  const Value x = g.Input("x", kData, {DType::kF32, {2}});
  EXPECT_EQ(Gradients(g, g.Op("tanh", {x}), {x}).status().message(),
            "the gradient needs a scalar, got f32[2] (reduce it, or give a seed)");
}

}  // namespace
}  // namespace mslua
