// Convolutions large enough for a processor's tiles: their accuracy against f64 over windows of every kind, and numbers
// that are not finite. Where there are no tiles, the kernel beside them is tested.
#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "absl/strings/match.h"
#include "core/base/parallel_for.h"
#include "core/base/processor.h"
#include "core/ops/testing/convolution_case.h"
#include "gtest/gtest.h"

namespace mslua {
namespace {

using testing::Call;
using testing::ConvolutionCall;
using testing::ConvolutionCase;
using testing::ConvolveByReference;

Call CallOf(const std::string& name, const ConvolutionCase& c, DType type) {
  return ConvolutionCall(name, c, type, "NHWC");
}

// By the kernel of that name, or the first there is where `name` is empty.
template <class T>
std::vector<T> RunKernel(const Call& call, const std::string& name, const std::vector<T>& a, const std::vector<T>& b) {
  std::vector<T> y(call.outputs[0].elements(), T(-7.0f));
  const void* const inputs[] = {a.data(), b.data()};
  void* const outputs[] = {y.data()};
  EXPECT_EQ(testing::RunFastKernel(call, name, inputs, outputs), absl::OkStatus());
  return y;
}

// Against f64, each error relative to the sum of absolute products.
class Errors {
 public:
  template <class T>
  Errors(const std::string& name, const ConvolutionCase& c, const std::vector<T>& a, const std::vector<T>& b) {
    const Call call = CallOf(name, c, DType::kF64);
    std::vector<double> x(a.begin(), a.end()), y(b.begin(), b.end());
    sums_ = *ConvolveByReference(call, x, y);
    for (double& v : x) v = std::fabs(v);
    for (double& v : y) v = std::fabs(v);
    absolute_ = *ConvolveByReference(call, x, y);
  }

  // Of numbers that are rounded to bf16 from f32: the largest, less that rounding.
  double OfRounded(const std::vector<BF16>& y) const {
    double largest = 0;
    for (size_t i = 0; i < y.size(); ++i) {
      const double error = std::fabs(static_cast<double>(static_cast<float>(y[i])) - sums_[i]);
      largest = std::max(largest, (error - std::ldexp(std::fabs(sums_[i]), -8)) / std::max(absolute_[i], 1e-30));
    }
    return largest;
  }

  // Root mean square and largest.
  std::pair<double, double> Of(const std::vector<float>& y) const {
    double squares = 0, largest = 0;
    for (size_t i = 0; i < y.size(); ++i) {
      if (absolute_[i] == 0) {
        EXPECT_EQ(y[i], 0) << i;
        continue;
      }
      const double error = (static_cast<double>(y[i]) - sums_[i]) / absolute_[i];
      squares += error * error;
      largest = std::max(largest, std::fabs(error));
    }
    return {std::sqrt(squares / static_cast<double>(y.size())), largest};
  }

 private:
  std::vector<double> sums_, absolute_;
};

const ConvolutionCase kCases[] = {
    {32, 32, 5, 4, 32, {3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}},
    {64, 40, 3, 6, 52, {3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}},   // channels that fill no tile
    {29, 64, 4, 4, 32, {3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}},   // images that fill no tile
    {90, 33, 7, 5, 36, {3, 3}, {2, 2}, {1, 1, 1, 1}, {1, 1}},   // strided
    {32, 32, 6, 7, 64, {3, 2}, {2, 1}, {0, 2, 1, 0}, {1, 2}},   // no two things alike
    {32, 32, 9, 3, 32, {5, 3}, {1, 1}, {2, 2, 1, 1}, {2, 1}},   // dilated
    {32, 96, 1, 1, 96, {3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}},   // all but one place lies in the padding
    {32, 32, 2, 2, 32, {3, 3}, {1, 1}, {3, 3, 3, 3}, {1, 1}},   // results of padding alone
    {32, 32, 5, 5, 32, {2, 2}, {3, 3}, {0, 0, 0, 0}, {1, 1}},   // pixels that no window sees
    {32, 128, 6, 6, 96, {1, 1}, {1, 1}, {0, 0, 0, 0}, {1, 1}},  // 1x1
    {64, 32, 2, 3, 32, {3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}},   // several blocks of images to a chunk
};

TEST(Conv2dTiles, AsAccurateAsF32) {
  std::mt19937 random(1);
  for (const ConvolutionCase& c : kCases) {
    for (const std::string name : testing::kConvolutions) {
      for (const int exponents : {0, 20}) {
        const Call call = CallOf(name, c, DType::kF32);
        const std::vector<float> a = testing::NormalNumbers(call.inputs[0].elements(), exponents, random),
                                 b = testing::NormalNumbers(call.inputs[1].elements(), exponents, random);
        const Errors errors(name, c, a, b);
        const auto ours = errors.Of(RunKernel(call, "", a, b)), plain = errors.Of(RunKernel(call, "onednn", a, b));
        EXPECT_LE(ours.first, 2 * plain.first) << name << " " << ToString(c) << " exponents " << exponents;
        // Without tiles both are oneDNN's, whose largest error is above 1e-6 where magnitudes differ.
        EXPECT_LE(ours.second, std::max(1e-6, plain.second))
            << name << " " << ToString(c) << " exponents " << exponents;
      }
    }
  }
}

// oneDNN's kernel, which computes these in blocks of channels on processors without AVX-512.
TEST(Conv2dOneDnn, ManyChannelsAreAccurate) {
  const ConvolutionCase cases[] = {
      {2, 64, 7, 6, 48, {3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}},
      {3, 48, 9, 8, 64, {3, 2}, {2, 1}, {0, 2, 1, 0}, {1, 2}},
      {2, 64, 6, 5, 128, {3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}, 4},
  };
  std::mt19937 random(5);
  for (const ConvolutionCase& c : cases) {
    for (const std::string name : testing::kConvolutions) {
      const Call call = CallOf(name, c, DType::kF32);
      const std::vector<float> a = testing::NormalNumbers(call.inputs[0].elements(), 0, random),
                               b = testing::NormalNumbers(call.inputs[1].elements(), 0, random);
      EXPECT_LE(Errors(name, c, a, b).Of(RunKernel(call, "onednn", a, b)).second, 1e-6) << name << " " << ToString(c);
    }
  }
}

TEST(Conv2dTiles, BF16RoundsOnce) {
  std::mt19937 random(4);
  for (const ConvolutionCase& c : kCases) {
    for (const std::string name : testing::kConvolutions) {
      const Call call = CallOf(name, c, DType::kBF16);
      std::vector<BF16> in[2];
      for (int i : {0, 1}) {
        for (float x : testing::NormalNumbers(call.inputs[i].elements(), 0, random)) in[i].push_back(BF16(x));
      }
      const Errors errors(name, c, in[0], in[1]);
      EXPECT_LE(errors.OfRounded(RunKernel(call, "", in[0], in[1])), 1e-6) << name << " " << ToString(c);
    }
  }
}

// Strips and chunks of an image: rows of the operand are found again wherever an image is split.
TEST(Conv2dTiles, ImagesThatAreCut) {
  std::mt19937 random(2);
  const ConvolutionCase c{32, 64, 24, 32, 32, {3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}};
  for (const std::string name : testing::kConvolutions) {
    const Call call = CallOf(name, c, DType::kF32);
    const std::vector<float> a = testing::NormalNumbers(call.inputs[0].elements(), 0, random),
                             b = testing::NormalNumbers(call.inputs[1].elements(), 0, random);
    const std::vector<float> ours = RunKernel(call, "", a, b), plain = RunKernel(call, "onednn", a, b);
    float largest = 0;
    for (size_t i = 0; i < ours.size(); ++i) largest = std::max(largest, std::fabs(ours[i] - plain[i]));
    EXPECT_LE(largest, name == "conv2d_grad_weight" ? 3e-3f : 3e-4f) << name;
  }
}

// Of tiles, which oneDNN's convolutions need not do: its threads may share a sum.
TEST(Conv2dTiles, BitsDoNotDependOnThreads) {
  if (!absl::StrContains(InstructionSets(), "amx")) GTEST_SKIP() << "no tiles here";
  std::mt19937 random(3);
  const int before = ComputeThreads();
  for (const std::string name : testing::kConvolutions) {
    const Call call = CallOf(name, kCases[3], DType::kF32);
    const std::vector<float> a = testing::NormalNumbers(call.inputs[0].elements(), 9, random),
                             b = testing::NormalNumbers(call.inputs[1].elements(), 9, random);
    SetComputeThreads(1);
    const std::vector<float> one = RunKernel(call, "", a, b);
    SetComputeThreads(3);
    EXPECT_EQ(one, RunKernel(call, "", a, b)) << name;
  }
  SetComputeThreads(before);
}

// Infinities and NaN are where f32 has them.
TEST(Conv2dTiles, NumbersThatAreNotFinite) {
  const ConvolutionCase& c = kCases[0];
  for (const std::string name : testing::kConvolutions) {
    const Call call = CallOf(name, c, DType::kF32);
    for (const int operand : {0, 1}) {
      for (const float odd : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
        std::vector<float> in[] = {std::vector<float>(call.inputs[0].elements(), 0.25f),
                                   std::vector<float>(call.inputs[1].elements(), 0.5f)};
        in[operand].back() = odd;
        const std::vector<float> ours = RunKernel(call, "", in[0], in[1]),
                                 plain = RunKernel(call, "onednn", in[0], in[1]);
        int64_t odd_ones = 0;
        for (size_t i = 0; i < ours.size(); ++i) {
          EXPECT_EQ(std::isfinite(ours[i]), std::isfinite(plain[i])) << name << " " << i;
          odd_ones += std::isfinite(ours[i]) ? 0 : 1;
        }
        EXPECT_GT(odd_ones, 0) << name;
      }
    }
  }
}

}  // namespace
}  // namespace mslua
