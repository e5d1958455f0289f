// Blocks of a transposed matrix, over Highway.
#include <algorithm>
#include <cstdint>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/ops/transpose_highway.cc"
// foreach_target.h first: it includes this file once for each instruction set.
// clang-format off
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// clang-format on

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

// y[c][r] = x[r][c] for `rows` and `columns`; strides in elements.
template <class T>
HWY_INLINE void TransposeStrip(const T* x, int64_t x_stride, T* y, int64_t y_stride, int64_t rows, int64_t columns) {
  constexpr int64_t kN = 16 / sizeof(T);
  const int64_t whole_rows = rows / kN * kN, whole_columns = columns / kN * kN;
  for (int64_t r = 0; r < whole_rows; r += kN) {
    for (int64_t c = 0; c < whole_columns; c += kN)
      TransposeSquare(x + r * x_stride + c, x_stride, y + c * y_stride + r, y_stride);
  }
  for (int64_t c = 0; c < columns; ++c) {
    for (int64_t r = c < whole_columns ? whole_rows : 0; r < rows; ++r) y[c * y_stride + r] = x[r * x_stride + c];
  }
}

void TransposeStripOf1(const void* x, int64_t x_stride, void* y, int64_t y_stride, int64_t rows, int64_t columns) {
  TransposeStrip(static_cast<const uint8_t*>(x), x_stride, static_cast<uint8_t*>(y), y_stride, rows, columns);
}
void TransposeStripOf2(const void* x, int64_t x_stride, void* y, int64_t y_stride, int64_t rows, int64_t columns) {
  TransposeStrip(static_cast<const uint16_t*>(x), x_stride, static_cast<uint16_t*>(y), y_stride, rows, columns);
}
void TransposeStripOf4(const void* x, int64_t x_stride, void* y, int64_t y_stride, int64_t rows, int64_t columns) {
  TransposeStrip(static_cast<const uint32_t*>(x), x_stride, static_cast<uint32_t*>(y), y_stride, rows, columns);
}
void TransposeStripOf8(const void* x, int64_t x_stride, void* y, int64_t y_stride, int64_t rows, int64_t columns) {
  TransposeStrip(static_cast<const uint64_t*>(x), x_stride, static_cast<uint64_t*>(y), y_stride, rows, columns);
}

}  // namespace HWY_NAMESPACE
}  // namespace mslua
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mslua {

HWY_EXPORT(TransposeStripOf1);
HWY_EXPORT(TransposeStripOf2);
HWY_EXPORT(TransposeStripOf4);
HWY_EXPORT(TransposeStripOf8);

void HighwayTransposeStrip(int64_t element_size, const void* x, int64_t x_stride, void* y, int64_t y_stride,
                           int64_t rows, int64_t columns) {
  switch (element_size) {
    case 1:
      return HWY_DYNAMIC_DISPATCH(TransposeStripOf1)(x, x_stride, y, y_stride, rows, columns);
    case 2:
      return HWY_DYNAMIC_DISPATCH(TransposeStripOf2)(x, x_stride, y, y_stride, rows, columns);
    case 4:
      return HWY_DYNAMIC_DISPATCH(TransposeStripOf4)(x, x_stride, y, y_stride, rows, columns);
    default:
      return HWY_DYNAMIC_DISPATCH(TransposeStripOf8)(x, x_stride, y, y_stride, rows, columns);
  }
}

}  // namespace mslua
#endif  // HWY_ONCE
