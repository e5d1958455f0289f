#include "core/kernels/simd/conversions.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/kernels/simd/bf16_conversions.cc"
// foreach_target.h first: it includes this file once for each instruction set.
// clang-format off
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "core/kernels/simd/simd-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace mslua {
namespace HWY_NAMESPACE {

void FromBF16(const BF16* in, int64_t n, float* out) {
  ForEachVector(n, [&](int64_t i, size_t k) { StoreN(LoadN(in + i, k), out + i, k); });
}

void ToBF16(const float* in, int64_t n, BF16* out) {
  ForEachVector(n, [&](int64_t i, size_t k) { StoreN(LoadN(in + i, k), out + i, k); });
}

}  // namespace HWY_NAMESPACE
}  // namespace mslua
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mslua {

HWY_EXPORT(FromBF16);
HWY_EXPORT(ToBF16);

void ToFloats(const BF16* in, int64_t n, float* out) { HWY_DYNAMIC_DISPATCH(FromBF16)(in, n, out); }
void FromFloats(const float* in, int64_t n, BF16* out) { HWY_DYNAMIC_DISPATCH(ToBF16)(in, n, out); }

}  // namespace mslua
#endif  // HWY_ONCE
