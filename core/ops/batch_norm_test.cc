// Batch normalisation beyond the invariants of ops_test.cc: the running statistics, and numbers far from zero.
#include <cmath>
#include <cstring>
#include <limits>

#include "core/graph/builder.h"
#include "core/graph/testing/evaluate.h"
#include "core/op/registry.h"
#include "gtest/gtest.h"

namespace mslua {
namespace {

template <class T>
std::string Bytes(const std::vector<T>& v) {
  return std::string(reinterpret_cast<const char*>(v.data()), v.size() * sizeof(T));
}

template <class T>
std::vector<T> Values(const std::string& s) {
  std::vector<T> v(s.size() / sizeof(T));
  std::memcpy(v.data(), s.data(), s.size());
  return v;
}

// One channel with values 1, 2, 3, 6: mean 3, variance 3.5, unbiased 14 / 3.
StatusOr<std::vector<std::string>> Normalise(bool training, const std::vector<double>& x = {1, 2, 3, 6}) {
  GraphBuilder g;
  std::vector<Value> in = {g.Input("x", kData, {DType::kF64, {4, 1}})};
  for (const char* name : {"scale", "bias", "mean", "variance"})
    in.push_back(g.Input(name, kState, {DType::kF64, {1}}));
  const std::vector<Value> out =
      g.OpMulti("batch_norm", in, {{"training", training}, {"momentum", 0.25}, {"eps", 0.5}});
  for (Value v : out) g.Output("o", v);
  ASSIGN_OR_RETURN(const Graph graph, g.Finish());
  return EvaluateReference(
      graph, {Bytes<double>(x), Bytes<double>({2}), Bytes<double>({10}), Bytes<double>({7}), Bytes<double>({8.5})});
}

TEST(BatchNorm, TrainingUsesTheBatchAndMovesTheRunningStatistics) {
  const auto out = Normalise(true);
  ASSERT_TRUE(out.ok()) << out.status();
  const std::vector<double> y = Values<double>((*out)[0]);
  for (int i = 0; i < 4; ++i) EXPECT_NEAR(y[i], (std::vector<double>{1, 2, 3, 6}[i] - 3) / 2 * 2 + 10, 1e-12);
  EXPECT_NEAR(Values<double>((*out)[1])[0], 0.75 * 7 + 0.25 * 3, 1e-12);
  EXPECT_NEAR(Values<double>((*out)[2])[0], 0.75 * 8.5 + 0.25 * 14 / 3, 1e-12);
}

TEST(BatchNorm, NumbersFarFromTheRunningMeanKeepTheirDigits) {
  constexpr double kFar = 1e9;
  const auto out = Normalise(true, {kFar + 1, kFar + 2, kFar + 3, kFar + 6});
  ASSERT_TRUE(out.ok()) << out.status();
  const std::vector<double> y = Values<double>((*out)[0]);
  for (int i = 0; i < 4; ++i) EXPECT_NEAR(y[i], (std::vector<double>{1, 2, 3, 6}[i] - 3) / 2 * 2 + 10, 1e-6);
  EXPECT_NEAR(Values<double>((*out)[1])[0], 0.75 * 7 + 0.25 * (kFar + 3), 1e-6);
  EXPECT_NEAR(Values<double>((*out)[2])[0], 0.75 * 8.5 + 0.25 * 14 / 3, 1e-6);
}

TEST(BatchNorm, EvaluationUsesTheRunningStatistics) {
  const auto out = Normalise(false);
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_NEAR(Values<double>((*out)[0])[3], (6 - 7) / 3.0 * 2 + 10, 1e-12);
  EXPECT_EQ(Values<double>((*out)[1])[0], 7);
  EXPECT_EQ(Values<double>((*out)[2])[0], 8.5);
}

// The statistics of all kernels beside f64's, for [3, 20, 333] in both formats about a shift of 1, where element `i` of
// a channel is value(i).
template <class F>
void ExpectDigits(F value) {
  const OpDef& op = *Operators().Find("batch_norm_stats");
  const int64_t n = 3, c = 20, s = 333;
  for (const bool last : {false, true}) {
    SCOPED_TRACE(last ? "NHWC" : "NCHW");
    Attrs attrs = {{"data_format", std::string(last ? "NHWC" : "NCHW")}};
    const Shape shape = last ? Shape{n, s, c} : Shape{n, c, s};
    std::vector<float> x(n * c * s), shift(c, 1);
    std::vector<double> sum(c), square(c);
    for (int64_t o = 0; o < n; ++o) {
      for (int64_t k = 0; k < c; ++k) {
        for (int64_t i = 0; i < s; ++i) {
          float& at = x[last ? (o * s + i) * c + k : (o * c + k) * s + i];
          at = value(o * s + i);
          sum[k] += at - 1.0;
          square[k] += (at - 1.0) * (at - 1.0);
        }
      }
    }
    const std::vector<TensorType> in = {{DType::kF32, shape}, {DType::kF32, {c}}};
    const auto types = CheckCall(op, in, attrs);
    ASSERT_TRUE(types.ok()) << types.status();
    const OpSpec spec{attrs, in, *types};
    ASSERT_TRUE(op.fast[0].supports(spec));
    auto kernel = op.fast[0].make(spec);
    ASSERT_TRUE(kernel.ok());
    std::vector<double> got_sum(c), got_square(c);
    std::vector<float> scratch((*kernel)->scratch_bytes() / sizeof(float) + 1);
    const void* inputs[] = {x.data(), shift.data()};
    void* outputs[] = {got_sum.data(), got_square.data()};
    ASSERT_TRUE((*kernel)->Run({inputs, outputs, scratch.data()}).ok());
    const double count = n * s;
    const auto variance = [&](double total, double squares) { return squares / count - total / count * total / count; };
    for (int64_t k = 0; k < c; ++k) {
      const double want = variance(sum[k], square[k]);
      EXPECT_NEAR(got_sum[k] / count, sum[k] / count, 1e-5 * std::sqrt(want));
      EXPECT_NEAR(variance(got_sum[k], got_square[k]) / want, 1, 1e-5);
    }
  }
}

// An infinite element among those from which the kernels take a first mean.
TEST(BatchNorm, SumsWithAnInfiniteElementAreInfinite) {
  const OpDef& op = *Operators().Find("batch_norm_stats");
  const std::vector<TensorType> in = {{DType::kF32, {4, 1}}, {DType::kF32, {1}}};
  const OpSpec spec{{{"data_format", std::string("NCHW")}}, in, {{DType::kF64, {1}}, {DType::kF64, {1}}}};
  auto kernel = op.fast[0].make(spec);
  ASSERT_TRUE(kernel.ok());
  const float x[] = {1, 2, std::numeric_limits<float>::infinity(), 3}, shift[] = {0};
  double sum = 0, squares = 0;
  std::vector<float> scratch((*kernel)->scratch_bytes() / sizeof(float) + 1);
  const void* inputs[] = {x, shift};
  void* outputs[] = {&sum, &squares};
  ASSERT_TRUE((*kernel)->Run({inputs, outputs, scratch.data()}).ok());
  EXPECT_EQ(sum, std::numeric_limits<double>::infinity());
}

TEST(BatchNorm, StatisticsFarFromTheShiftKeepTheirDigits) {
  ExpectDigits([](int64_t i) { return 1000 + static_cast<float>(std::sin(static_cast<double>(i))) / 16; });
}

// Two of the eight elements from which the kernels take a first mean are far from all others.
TEST(BatchNorm, StatisticsBesideAnOutlierKeepTheirDigits) {
  ExpectDigits(
      [](int64_t i) { return i == 0 || i == 124 ? 1e7f : static_cast<float>(std::sin(static_cast<double>(i))); });
}

TEST(BatchNorm, SaysWhatDoesNotFit) {
  GraphBuilder g;
  std::vector<Value> in = {g.Input("x", kData, {DType::kBF16, {4, 3, 2, 2}})};
  for (const char* name : {"scale", "bias", "mean", "variance"})
    in.push_back(g.Input(name, kState, {DType::kF32, {2}}));
  g.OpMulti("batch_norm", in);
  EXPECT_NE(g.status().message().find("expected [3], one element a channel"), std::string::npos) << g.status();
}

}  // namespace
}  // namespace mslua
