// The elements of a dropped tensor, over Highway.
#include <cstdint>

#include "core/base/dtype.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/ops/dropout_highway.cc"
// foreach_target.h first: it includes this file once for each instruction set.
// clang-format off
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "core/kernels/simd/simd-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace mslua {
namespace HWY_NAMESPACE {

template <class T>
HWY_INLINE void KeepScaled(const float* u, float p, float scale, const T* x, T* y, int64_t n) {
  const F32 d;
  const V32 least = hn::Set(d, p), factor = hn::Set(d, scale);
  ForEachVector(n, [&](int64_t i, size_t count) {
    const V32 scaled = hn::Mul(LoadN(x + i, count), factor);
    StoreN(hn::IfThenElseZero(hn::Ge(LoadN(u + i, count), least), scaled), y + i, count);
  });
}

void KeepScaledF32(const float* u, float p, float scale, const float* x, float* y, int64_t n) {
  KeepScaled(u, p, scale, x, y, n);
}
void KeepScaledBF16(const float* u, float p, float scale, const BF16* x, BF16* y, int64_t n) {
  KeepScaled(u, p, scale, x, y, n);
}

}  // namespace HWY_NAMESPACE
}  // namespace mslua
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mslua {

HWY_EXPORT(KeepScaledF32);
HWY_EXPORT(KeepScaledBF16);

void HighwayKeepScaled(const float* u, float p, float scale, const float* x, float* y, int64_t n) {
  HWY_DYNAMIC_DISPATCH(KeepScaledF32)(u, p, scale, x, y, n);
}
void HighwayKeepScaled(const float* u, float p, float scale, const BF16* x, BF16* y, int64_t n) {
  HWY_DYNAMIC_DISPATCH(KeepScaledBF16)(u, p, scale, x, y, n);
}

}  // namespace mslua
#endif  // HWY_ONCE
