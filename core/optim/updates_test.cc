// Two steps of each optimizer on one number, worked out from its paper's formulas.
#include <cmath>
#include <cstring>

#include "core/graph/builder.h"
#include "core/graph/testing/evaluate.h"
#include "gtest/gtest.h"

namespace mslua {
namespace {

// The results of one update of scalars held in [1].
std::vector<double> Update(const std::string& op, std::vector<double> tensors, std::vector<double> scalars,
                           Attrs attrs = {}) {
  GraphBuilder g;
  std::vector<Value> in;
  std::vector<std::string> bytes;
  const auto add = [&](double v, Shape shape) {
    in.push_back(g.Input("i" + std::to_string(in.size()), kState, {DType::kF64, std::move(shape)}));
    bytes.emplace_back(reinterpret_cast<const char*>(&v), sizeof v);
  };
  for (double v : tensors) add(v, {1});
  for (double v : scalars) add(v, {});
  for (Value v : g.OpMulti(op, in, std::move(attrs))) g.Output("o", v);
  const auto graph = g.Finish();
  EXPECT_TRUE(graph.ok()) << graph.status();
  if (!graph.ok()) return {};
  const auto out = EvaluateReference(*graph, bytes);
  EXPECT_TRUE(out.ok()) << out.status();
  std::vector<double> values;
  for (const std::string& s : *out) {
    double v;
    std::memcpy(&v, s.data(), sizeof v);
    values.push_back(v);
  }
  return values;
}

TEST(ApplySgd, Decays) { EXPECT_NEAR(Update("apply_sgd", {2, 3}, {0.1, 0.5})[0], 2 - 0.1 * (3 + 0.5 * 2), 1e-15); }

TEST(ApplyMomentum, PlainAndNesterov) {
  const double velocity = 0.9 * 4 + (3 + 0.5 * 2);
  const auto plain = Update("apply_momentum", {2, 3, 4}, {0.1, 0.9, 0.5});
  EXPECT_NEAR(plain[1], velocity, 1e-15);
  EXPECT_NEAR(plain[0], 2 - 0.1 * velocity, 1e-15);
  const auto nesterov = Update("apply_momentum", {2, 3, 4}, {0.1, 0.9, 0.5}, {{"nesterov", true}});
  EXPECT_NEAR(nesterov[0], 2 - 0.1 * (4 + 0.9 * velocity), 1e-15);
}

TEST(ApplyAdam, FirstStepIsTheRateAndTheSecondIsCorrected) {
  const auto first = Update("apply_adam", {2, 3, 0, 0}, {0.1, 0, 1});
  EXPECT_NEAR(first[0], 2 - 0.1 * 3 / (3 + 1e-8), 1e-12);
  EXPECT_NEAR(first[1], 0.3, 1e-12);
  EXPECT_NEAR(first[2], 0.009, 1e-12);
  const auto second = Update("apply_adam", {2, 1, 0.3, 0.009}, {0.1, 0, 2});
  const double m = 0.9 * 0.3 + 0.1, v = 0.999 * 0.009 + 0.001;
  EXPECT_NEAR(second[0], 2 - 0.1 * (m / (1 - 0.81)) / (std::sqrt(v / (1 - 0.999 * 0.999)) + 1e-8), 1e-12);
}

TEST(ApplyAdamWeightDecay, DecayIsApartFromTheGradient) {
  const auto corrected =
      Update("apply_adam_weight_decay", {2, 3, 0, 0}, {0.1, 0.5, 1}, {{"bias_correction", true}, {"eps", 1e-8}});
  EXPECT_NEAR(corrected[0], 2 - 0.1 * (3 / (3 + 1e-8) + 0.5 * 2), 1e-12);
  EXPECT_NEAR(corrected[1], 0.3, 1e-12);
  const auto raw = Update("apply_adam_weight_decay", {2, 3, 0, 0}, {0.1, 0.5, 1}, {{"eps", 1e-8}});
  EXPECT_NEAR(raw[0], 2 - 0.1 * (0.3 / (std::sqrt(0.009) + 1e-8) + 0.5 * 2), 1e-12);
}

TEST(ApplyLamb, StepHasTheParametersNorm) {
  // r = 1 + 0.5 * 2 = 2, as long as the parameter: the ratio is 1. With half the decay r = 1.5, the step still 2.
  EXPECT_NEAR(Update("apply_lamb", {2, 3, 0, 0}, {0.1, 0.5, 1})[0], 2 - 0.1 * 2, 1e-6);
  EXPECT_NEAR(Update("apply_lamb", {2, 3, 0, 0}, {0.1, 0.25, 1})[0], 2 - 0.1 * 2, 1e-6);
  // A parameter of zero has no norm: the ratio is 1.
  EXPECT_NEAR(Update("apply_lamb", {0, 3, 0, 0}, {0.1, 0.5, 1})[0], -0.1, 1e-6);
}

TEST(Updates, SayWhatDoesNotFit) {
  GraphBuilder g;
  const Value p = g.Input("p", kParameter, {DType::kF32, {3}}), d = g.Input("d", kData, {DType::kF32, {4}}),
              lr = g.Input("lr", kScalar, {DType::kF32, {}});
  g.OpMulti("apply_sgd", {p, d, lr, lr});
  EXPECT_NE(g.status().message().find("the gradient and the state have the parameter's shape"), std::string::npos)
      << g.status();
}

}  // namespace
}  // namespace mslua
