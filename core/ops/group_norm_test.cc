// Group normalisation's kernels give what the reference gives, in both orders of dimensions and for any sizes, and the
// same bits for any number of threads.
#include <random>

#include "absl/strings/str_cat.h"
#include "core/base/parallel_for.h"
#include "core/op/registry.h"
#include "core/ops/testing/sample_run.h"
#include "gtest/gtest.h"

namespace mslua {
namespace {

using testing::Memory;

void Fill(const Memory& m, double mean, std::mt19937* random) {
  std::normal_distribution<double> normal(mean, 1);
  for (int64_t i = 0; i < m.type().elements(); ++i) StoreDouble(m.type().dtype, m.data(), i, normal(*random));
}

std::vector<Memory> RunFast(const testing::Call& call, const std::vector<Memory>& inputs, int threads) {
  std::vector<Memory> outputs;
  std::vector<const void*> in;
  std::vector<void*> out;
  for (const Memory& m : inputs) in.push_back(m.data());
  for (const TensorType& t : call.outputs) {
    outputs.emplace_back(t);
    out.push_back(outputs.back().data());
  }
  SetComputeThreads(threads);
  EXPECT_EQ(testing::RunFastKernel(call, "highway", in.data(), out.data()), absl::OkStatus());
  SetComputeThreads(1);
  return outputs;
}

// `offset`: the mean of x, as a multiple of its deviation.
void ExpectReference(DType t, int64_t n, int64_t c, int64_t h, int64_t w, int64_t groups, bool last, double offset,
                     std::mt19937* random) {
  SCOPED_TRACE(absl::StrCat(Name(t), " [", n, ",", c, ",", h, ",", w, "] groups ", groups, last ? " NHWC" : " NCHW"));
  const TensorType images = {t, last ? Shape{n, h, w, c} : Shape{n, c, h, w}};
  const TensorType channels = {DType::kF32, {c}}, statistics = {DType::kF32, {n, groups}};
  for (const bool gradient : {false, true}) {
    Attrs attrs = {{"groups", groups}, {"data_format", std::string(last ? "NHWC" : "NCHW")}};
    const std::vector<TensorType> types =
        gradient ? std::vector<TensorType>{images, images, statistics, statistics, channels}
                 : std::vector<TensorType>{images, channels, channels};
    const auto call =
        testing::MakeCall(*Operators().Find(gradient ? "group_norm_grad" : "group_norm_apply"), types, attrs);
    ASSERT_TRUE(call.ok()) << call.status();
    std::vector<Memory> inputs;
    for (const TensorType& type : types) {
      inputs.emplace_back(type);
      const bool of_x = inputs.size() == (gradient ? 2 : 1) || type.shape == statistics.shape;
      Fill(inputs.back(), of_x ? offset : 0, random);
    }
    const auto wanted = testing::RunReference(*call, inputs);
    ASSERT_TRUE(wanted.ok()) << wanted.status();
    const std::vector<Memory> once = RunFast(*call, inputs, 1), shared = RunFast(*call, inputs, 3);
    for (size_t k = 0; k < once.size(); ++k) {
      const double tolerance = once[k].type().dtype == DType::kBF16 ? 8e-3 : 2e-5;
      EXPECT_EQ(testing::ExpectNear(once[k], (*wanted)[k], tolerance), absl::OkStatus())
          << (gradient ? "gradient, output " : "output ") << k;
      EXPECT_TRUE(once[k].intact()) << "output " << k;
      EXPECT_TRUE(once[k].bytes() == shared[k].bytes()) << "output " << k << " depends on the threads";
    }
  }
}

TEST(GroupNormTest, AnySizesGiveTheReference) {
  std::mt19937 random(1);
  for (int i = 0; i < 300; ++i) {
    const auto below = [&](uint32_t n) { return static_cast<int64_t>(random() % n) + 1; };
    const int64_t groups = below(6), channels = groups * below(i % 10 == 0 ? 60 : 7);
    ExpectReference(i % 3 == 0 ? DType::kBF16 : DType::kF32, below(i % 4 == 0 ? 20 : 3), channels, below(9), below(9),
                    groups, i % 2 == 0, 1, &random);
    if (HasFailure()) return;
  }
}

TEST(GroupNormTest, LargeImagesAndOneGroupOrAsManyAsChannels) {
  std::mt19937 random(2);
  for (const DType t : {DType::kF32, DType::kBF16}) {
    for (const bool last : {false, true}) {
      for (const int64_t groups : {1, 8, 24}) {
        ExpectReference(t, 2, 24, 40, 41, groups, last, 1, &random);
        ExpectReference(t, 1, 2400, 2, 1, groups, last, 1, &random);
      }
    }
  }
}

// The squares of x lose the variance's digits here.
TEST(GroupNormTest, AMeanFarFromZeroLosesNoDigits) {
  std::mt19937 random(3);
  const TensorType vector = {DType::kF32, {24}};
  for (const bool last : {false, true}) {
    const TensorType images = {DType::kF32, last ? Shape{2, 16, 16, 24} : Shape{2, 24, 16, 16}};
    const auto call = testing::MakeCall(*Operators().Find("group_norm_apply"), {images, vector, vector},
                                        {{"groups", int64_t{8}}, {"data_format", std::string(last ? "NHWC" : "NCHW")}});
    ASSERT_TRUE(call.ok()) << call.status();
    std::vector<Memory> inputs;
    for (const TensorType& t : call->inputs) inputs.emplace_back(t);
    Fill(inputs[0], 3000, &random);
    Fill(inputs[1], 0, &random);
    Fill(inputs[2], 0, &random);
    const auto wanted = testing::RunReference(*call, inputs);
    ASSERT_TRUE(wanted.ok()) << wanted.status();
    EXPECT_EQ(testing::ExpectNear(RunFast(*call, inputs, 1)[0], (*wanted)[0], 5e-4), absl::OkStatus());
  }
}

}  // namespace
}  // namespace mslua
