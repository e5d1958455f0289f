#include "core/autodiff/gradient.h"

#include <cmath>

#include "core/graph/evaluate.h"
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

TEST(Gradient, OfAValueThatIsNotUsedIsZero) {
  GraphBuilder g;
  const Value x = g.Input("x", kData, {DType::kF32, {}}), z = g.Input("z", kData, {DType::kF32, {2}});
  auto d = Gradients(g, g.Op("tanh", {x}), {x, z});
  ASSERT_TRUE(d.ok());
  EXPECT_EQ(g.TypeOf((*d)[1]), (TensorType{DType::kF32, {2}}));
  EXPECT_EQ(DependsOn(g.graph(), (*d)[0], {x, z}), (std::vector<bool>{true, false}));
}

TEST(Gradient, NeedsAScalarOrASeed) {
  GraphBuilder g;
  const Value x = g.Input("x", kData, {DType::kF32, {2}});
  EXPECT_EQ(Gradients(g, g.Op("tanh", {x}), {x}).status().message(),
            "the gradient needs a scalar, got f32[2] (reduce it, or give a seed)");
}

}  // namespace
}  // namespace mslua
