// Heads of whole tiles, which kernels over a processor's tile instructions take, and of several blocks of queries and
// keys with rests; the invariants of ops_test.cc are checked on small ones.
#include <cmath>
#include <cstring>

#include "core/base/aligned_memory.h"
#include "core/op/registry.h"
#include "core/ops/testing/instruction_sets.h"
#include "core/ops/testing/op_checks.h"
#include "gtest/gtest.h"

namespace mslua {
namespace {

Status Check(const char* op, std::vector<Shape> shapes, Attrs attrs) {
  Sample sample;
  for (Shape& shape : shapes) sample.inputs.push_back({DType::kF32, std::move(shape)});
  sample.attrs = std::move(attrs);
  sample.low = -1;
  sample.high = 1.5;
  return testing::CheckFastKernels(*Operators().Find(op), sample);
}

TEST(Attention, WholeTiles) {
  for (const bool causal : {false, true}) {
    for (const Shape& s : {Shape{1, 64, 2, 32}, Shape{1, 32, 1, 96}}) {
      const int64_t n = s[0], t = s[1], heads = s[2], d = s[3];
      const Attrs attrs = {{"causal", causal}};
      const Shape head = {n, heads, t, d}, rows = {n, heads, t};
      EXPECT_EQ(Check("scaled_dot_product_attention", {head, head, head}, attrs), absl::OkStatus());
      EXPECT_EQ(Check("scaled_dot_product_attention_grad", {head, head, head, rows, rows, head}, attrs),
                absl::OkStatus());
      for (const double scale : {0.3, -0.3}) {
        const Attrs packed = {{"causal", causal}, {"heads", heads}, {"scale", scale}};
        const Shape qkv = {n, t, 3 * heads * d}, y = {n, t, heads * d};
        EXPECT_EQ(Check("packed_attention", {qkv}, packed), absl::OkStatus());
        EXPECT_EQ(Check("packed_attention_grad", {qkv, y, rows, y}, packed), absl::OkStatus());
      }
    }
  }
}

void CheckSeveralBlocks() {
  for (const bool causal : {false, true}) {
    const Attrs attrs = {{"causal", causal}};
    const Shape q = {1, 101, 20}, k = {1, 147, 20}, v = {1, 147, 35}, rows = {1, 101}, y = {1, 101, 35};
    EXPECT_EQ(Check("scaled_dot_product_attention", {q, k, v}, attrs), absl::OkStatus());
    EXPECT_EQ(Check("scaled_dot_product_attention_grad", {q, k, v, rows, rows, y}, attrs), absl::OkStatus());
    const Attrs packed = {{"causal", causal}, {"heads", int64_t{2}}};
    EXPECT_EQ(Check("packed_attention", {{1, 130, 3 * 2 * 12}}, packed), absl::OkStatus());
    EXPECT_EQ(Check("packed_attention_grad", {{1, 130, 72}, {1, 130, 24}, {1, 2, 130}, {1, 130, 24}}, packed),
              absl::OkStatus());
  }
}

TEST(Attention, SeveralBlocks) { CheckSeveralBlocks(); }

// A query that is NaN gives a row of NaN, and no other.
TEST(Attention, NaNStaysInItsRow) {
  const OpDef& op = *Operators().Find("scaled_dot_product_attention");
  constexpr int64_t kRows = 3, kWidth = 4;
  const TensorType head = {DType::kF32, {kRows, kWidth}};
  const Attrs attrs = {{"causal", false}, {"scale", 0.0}};
  const TensorType inputs_of[] = {head, head, head}, outputs_of[] = {head, {DType::kF32, {kRows}}};
  const OpSpec spec{attrs, inputs_of, outputs_of};
  alignas(64) float q[kRows * kWidth] = {}, k[kRows * kWidth] = {}, y[kRows * kWidth], lse[kRows];
  const uint32_t with_payload = 0x7fc00001;
  std::memcpy(&q[kWidth], &with_payload, sizeof with_payload);
  for (const FastKernel& fast : op.fast) {
    if (!fast.supports(spec)) continue;
    const auto kernel = fast.make(spec);
    ASSERT_TRUE(kernel.ok());
    const AlignedMemory scratch = AllocateAligned((*kernel)->scratch_bytes());
    const void* const inputs[] = {q, k, k};
    void* const outputs[] = {y, lse};
    ASSERT_EQ((*kernel)->Run({inputs, outputs, scratch.get()}), absl::OkStatus());
    for (int64_t i = 0; i < kRows * kWidth; ++i) EXPECT_EQ(std::isnan(y[i]), i / kWidth == 1) << fast.name << " " << i;
  }
}

TEST(Attention, EveryInstructionSet) { testing::OnEveryInstructionSet(CheckSeveralBlocks); }

}  // namespace
}  // namespace mslua
