// Labels that are wrong or ignored, and numbers that are no numbers, in every kernel.
#include <cmath>
#include <limits>

#include "core/op/registry.h"
#include "gtest/gtest.h"

namespace mslua {
namespace {

constexpr int64_t kClasses = 19;

// Runs kernel `which` (-1: the reference) on two records.
Status RunKernel(int which, std::vector<float> logits, std::vector<int32_t> labels, float* loss) {
  const OpDef& op = *Operators().Find("sparse_softmax_cross_entropy");
  Attrs attrs;
  const std::vector<TensorType> in = {{DType::kF32, {2, kClasses}}, {DType::kI32, {2}}};
  ASSIGN_OR_RETURN(const std::vector<TensorType> out, CheckCall(op, in, attrs));
  float lse[2], low[2];
  if (which < 0) {
    const TensorView inputs[] = {{in[0], logits.data()}, {in[1], labels.data()}},
                     outputs[] = {{out[0], loss}, {out[1], lse}, {out[2], low}};
    return op.reference({attrs, inputs, outputs});
  }
  ASSIGN_OR_RETURN(const auto kernel, op.fast[which].make({attrs, in, out}));
  const void* inputs[] = {logits.data(), labels.data()};
  void* outputs[] = {loss, lse, low};
  return kernel->Run({inputs, outputs, nullptr});
}

class Kernels : public ::testing::TestWithParam<int> {};

TEST_P(Kernels, LabelOutOfRangeIsNamed) {
  float loss[2];
  for (const int32_t label : {19, -1}) {
    const Status s = RunKernel(GetParam(), std::vector<float>(2 * kClasses), {3, label}, loss);
    EXPECT_EQ(s.message(), "the label of record 2 is " + std::to_string(label) + ", expected 0 to 18 for 19 classes");
  }
}

TEST(DeviceFault, IsTheErrorOfTheReference) {
  const OpDef& op = *Operators().Find("sparse_softmax_cross_entropy");
  Attrs attrs;
  const std::vector<TensorType> in = {{DType::kF32, {2, kClasses}}, {DType::kI32, {2}}};
  const auto out = CheckCall(op, in, attrs);
  ASSERT_TRUE(out.ok()) << out.status();
  float loss[2];
  const Status wanted = RunKernel(-1, std::vector<float>(2 * kClasses), {19, 3}, loss);
  DeviceFault fault;
  fault.at = 0;
  fault.value = 19;
  const Status found = op.device_fault({attrs, in, *out}, fault);
  EXPECT_EQ(found, wanted);
  EXPECT_EQ(found.GetPayload("mslua/record"), wanted.GetPayload("mslua/record"));
}

TEST_P(Kernels, IgnoredRecordLosesNothing) {
  float loss[2];
  ASSERT_TRUE(RunKernel(GetParam(), std::vector<float>(2 * kClasses, 0.5f), {-100, 18}, loss).ok());
  EXPECT_EQ(loss[0], 0);
  EXPECT_NEAR(loss[1], std::log(19.0), 1e-6);
}

TEST_P(Kernels, LargeLogitsDoNotOverflowAndNanStays) {
  std::vector<float> logits(2 * kClasses, -1e30f);
  logits[2] = 1e30f;
  logits[kClasses + 18] = std::numeric_limits<float>::quiet_NaN();
  float loss[2];
  ASSERT_TRUE(RunKernel(GetParam(), logits, {2, 0}, loss).ok());
  EXPECT_EQ(loss[0], 0);
  EXPECT_TRUE(std::isnan(loss[1]));
}

INSTANTIATE_TEST_SUITE_P(All, Kernels, ::testing::Values(-1, 0));

}  // namespace
}  // namespace mslua
