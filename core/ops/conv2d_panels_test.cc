// Convolutions of f64 over panels beside the reference: windows of every kind in both formats, blocks of rows, threads,
// and numbers that are not finite.
#include <cmath>
#include <limits>
#include <random>

#include "core/base/parallel_for.h"
#include "core/ops/testing/convolution_case.h"
#include "gtest/gtest.h"

namespace mslua {
namespace {

using testing::Call;
using testing::ConvolutionCall;
using testing::ConvolutionCase;
using testing::ConvolveByReference;

const ConvolutionCase kCases[] = {
    {2, 3, 7, 6, 5, {3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}},
    {3, 4, 9, 5, 6, {3, 2}, {2, 1}, {0, 2, 1, 0}, {1, 2}},       // no two things alike
    {2, 6, 8, 9, 10, {3, 5}, {1, 2}, {2, 2, 1, 1}, {2, 1}, 2},   // groups
    {2, 8, 5, 5, 9, {1, 1}, {1, 1}, {0, 0, 0, 0}, {1, 1}},       // 1x1
    {1, 4, 1, 1, 3, {3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}},       // all but one place lies in the padding
    {2, 3, 5, 5, 4, {2, 2}, {3, 3}, {0, 0, 0, 0}, {1, 1}},       // pixels that no window sees
    {2, 33, 23, 29, 7, {5, 5}, {1, 1}, {2, 2, 2, 2}, {1, 1}},    // three blocks, the last one smaller
    {1, 2, 12, 17, 4, {3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}, 1},  // one image, two channels: few tasks
    {1, 5, 300, 3, 2, {1, 3}, {1, 1}, {0, 0, 1, 1}, {1, 1}},     // more places than a panel is deep
};

std::vector<double> Random(int64_t n, std::mt19937& random) {
  std::normal_distribution<double> draw;
  std::vector<double> x(static_cast<size_t>(n));
  for (double& v : x) v = draw(random);
  return x;
}

std::vector<double> RunPanels(const Call& call, const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> y(static_cast<size_t>(call.outputs[0].elements()), NAN);
  const void* const inputs[] = {a.data(), b.data()};
  void* const outputs[] = {y.data()};
  EXPECT_EQ(testing::RunFastKernel(call, "panels", inputs, outputs), absl::OkStatus());
  return y;
}

void ExpectNear(const std::vector<double>& y, const std::vector<double>& want, const std::string& what) {
  ASSERT_EQ(y.size(), want.size());
  for (size_t i = 0; i < y.size(); ++i) {
    if (std::isfinite(want[i]))
      ASSERT_NEAR(y[i], want[i], 1e-10) << what << ", element " << i;
    else
      ASSERT_EQ(std::isnan(y[i]) ? "nan" : std::to_string(y[i]), std::isnan(want[i]) ? "nan" : std::to_string(want[i]))
          << what << ", element " << i;
  }
}

TEST(Conv2dPanels, AsTheReferenceOnAnyThreads) {
  const int before = ComputeThreads();
  std::mt19937 random(1);
  for (const ConvolutionCase& c : kCases) {
    for (const std::string name : testing::kConvolutions) {
      for (const char* const format : {"NCHW", "NHWC"}) {
        const Call call = ConvolutionCall(name, c, DType::kF64, format);
        const std::vector<double> a = Random(call.inputs[0].elements(), random),
                                  b = Random(call.inputs[1].elements(), random);
        SetComputeThreads(1);
        const std::vector<double> y = RunPanels(call, a, b);
        ExpectNear(y, *ConvolveByReference(call, a, b), name + " of case " + std::to_string(&c - kCases));
        for (const int threads : {2, 3, 7}) {
          SetComputeThreads(threads);
          EXPECT_EQ(RunPanels(call, a, b), y) << name << " of case " << &c - kCases << ", threads " << threads;
        }
      }
    }
  }
  SetComputeThreads(before);
}

// Padding meets no numbers, and so adds no NaN where one is infinite.
TEST(Conv2dPanels, NumbersThatAreNotFiniteAreWhereTheyAreInTheReference) {
  std::mt19937 random(2);
  const ConvolutionCase& c = kCases[0];
  for (const std::string name : testing::kConvolutions) {
    const Call call = ConvolutionCall(name, c, DType::kF64, "NCHW");
    for (const double wild : {std::numeric_limits<double>::infinity(), std::nan("")}) {
      for (const int operand : {0, 1}) {
        std::vector<double> in[] = {Random(call.inputs[0].elements(), random),
                                    Random(call.inputs[1].elements(), random)};
        in[operand][1] = wild;
        ExpectNear(RunPanels(call, in[0], in[1]), *ConvolveByReference(call, in[0], in[1]), name);
      }
    }
  }
}

}  // namespace
}  // namespace mslua
