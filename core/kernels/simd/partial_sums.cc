#include "core/kernels/simd/partial_sums.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/kernels/simd/partial_sums.cc"
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
void Join(const float* parts, int64_t count, int64_t stride, T* y, int64_t n) {
  ForEachVector(n, [&](int64_t i, size_t k) {
    V32 sum = LoadN(parts + i, k);
    for (int64_t p = 1; p < count; ++p) sum = hn::Add(sum, LoadN(parts + p * stride + i, k));
    StoreN(sum, y + i, k);
  });
}

void JoinF32(const float* parts, int64_t count, int64_t stride, float* y, int64_t n) {
  Join(parts, count, stride, y, n);
}
void JoinBF16(const float* parts, int64_t count, int64_t stride, BF16* y, int64_t n) {
  Join(parts, count, stride, y, n);
}

}  // namespace HWY_NAMESPACE
}  // namespace mslua
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mslua {

HWY_EXPORT(JoinF32);
HWY_EXPORT(JoinBF16);

void JoinSums(const float* parts, int64_t count, int64_t n, DType type, void* y, int64_t begin, int64_t end) {
  if (type == DType::kF32)
    HWY_DYNAMIC_DISPATCH(JoinF32)(parts + begin, count, n, static_cast<float*>(y) + begin, end - begin);
  else
    HWY_DYNAMIC_DISPATCH(JoinBF16)(parts + begin, count, n, static_cast<BF16*>(y) + begin, end - begin);
}

}  // namespace mslua
#endif  // HWY_ONCE
