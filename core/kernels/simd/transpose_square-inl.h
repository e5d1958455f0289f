// Transposes squares of the smallest vectors. Included by files that are compiled once for each instruction set
// (hwy/foreach_target.h).
#if defined(MSLUA_OPS_TRANSPOSE_SQUARE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MSLUA_OPS_TRANSPOSE_SQUARE_INL_H_
#undef MSLUA_OPS_TRANSPOSE_SQUARE_INL_H_
#else
#define MSLUA_OPS_TRANSPOSE_SQUARE_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace mslua {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// A square of N x N elements, N to 16 bytes: N vectors are interleaved, half with half, log2(N) times.
template <class T, size_t kN = 16 / sizeof(T)>
HWY_INLINE void TransposeSquare(const T* x, int64_t x_stride, T* y, int64_t y_stride) {
#if HWY_TARGET == HWY_SCALAR
  for (int64_t r = 0; r < static_cast<int64_t>(kN); ++r) {
    for (int64_t c = 0; c < static_cast<int64_t>(kN); ++c) y[c * y_stride + r] = x[r * x_stride + c];
  }
#else
  const hn::FixedTag<T, kN> d;
  hn::Vec<decltype(d)> rows[kN], next[kN];
  for (size_t r = 0; r < kN; ++r) rows[r] = hn::LoadU(d, x + static_cast<int64_t>(r) * x_stride);
  for (size_t half = kN / 2; half > 0; half /= 2) {
    for (size_t r = 0; r < kN / 2; ++r) {
      next[2 * r] = hn::InterleaveLower(d, rows[r], rows[r + kN / 2]);
      next[2 * r + 1] = hn::InterleaveUpper(d, rows[r], rows[r + kN / 2]);
    }
    for (size_t r = 0; r < kN; ++r) rows[r] = next[r];
  }
  for (size_t r = 0; r < kN; ++r) hn::StoreU(rows[r], d, y + static_cast<int64_t>(r) * y_stride);
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace mslua
HWY_AFTER_NAMESPACE();

#endif
