// Blocks of a transposed matrix, over Highway.
#include <algorithm>
#include <cstdint>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/ops/transpose_highway.cc"
// foreach_target.h first: it includes this file once for each instruction set.
// clang-format off
#include "hwy/foreach_target.h"
#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "core/kernels/simd/transpose_square-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace mslua {
namespace HWY_NAMESPACE {
constexpr int64_t kLine = 64;  // bytes

// Of each row the line after next: rows lie too far apart for the processor to foresee the next strip's.
template <int64_t kRows, class T>
HWY_INLINE void FetchAhead(const T* x, int64_t x_stride) {
  for (int64_t r = 0; r < kRows; ++r) hwy::Prefetch(x + r * x_stride + 2 * kLine / static_cast<int64_t>(sizeof(T)));
}

#if HWY_TARGET != HWY_SCALAR
// A square as wide and as high as a cache line, transposed in `lines` and written past the caches.
template <class T>
HWY_INLINE void StreamSquare(const T* x, int64_t x_stride, T* y, int64_t y_stride) {
  constexpr int64_t kN = 16 / sizeof(T), kWidth = kLine / sizeof(T);
  const hn::FixedTag<T, kN> d;
  HWY_ALIGN T lines[kWidth * kWidth];
  for (int64_t r = 0; r < kWidth; r += kN) {
    for (int64_t c = 0; c < kWidth; c += kN)
      TransposeSquare(x + r * x_stride + c, x_stride, lines + c * kWidth + r, kWidth);
  }
  for (int64_t c = 0; c < kWidth; ++c) {
    for (int64_t r = 0; r < kWidth; r += kN) hn::Stream(hn::Load(d, lines + c * kWidth + r), d, y + c * y_stride + r);
  }
}

// Rows of images of two or three channels become pixels one after another, and the other way round. Gives how many of
// the `n` pixels it has moved.
template <class T>
HWY_INLINE int64_t ToPixels(const T* x, int64_t x_stride, T* y, int64_t channels, int64_t n) {
  const hn::FixedTag<T, 16 / sizeof(T)> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t c = 0;
  for (; c + lanes <= n; c += lanes) {
    const auto first = hn::LoadU(d, x + c), second = hn::LoadU(d, x + x_stride + c);
    if (channels == 2)
      hn::StoreInterleaved2(first, second, d, y + 2 * c);
    else
      hn::StoreInterleaved3(first, second, hn::LoadU(d, x + 2 * x_stride + c), d, y + 3 * c);
  }
  return c;
}
template <class T>
HWY_INLINE int64_t FromPixels(const T* x, T* y, int64_t y_stride, int64_t channels, int64_t n) {
  const hn::FixedTag<T, 16 / sizeof(T)> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t r = 0;
  for (; r + lanes <= n; r += lanes) {
    hn::Vec<decltype(d)> first, second, third;
    if (channels == 2) {
      hn::LoadInterleaved2(d, x + 2 * r, first, second);
    } else {
      hn::LoadInterleaved3(d, x + 3 * r, first, second, third);
      hn::StoreU(third, d, y + 2 * y_stride + r);
    }
    hn::StoreU(first, d, y + r);
    hn::StoreU(second, d, y + y_stride + r);
  }
  return r;
}

// As TransposeStrip for a strip as wide as a cache line whose lines of y are aligned. The rows after those that are
// moved are fetched meanwhile: a row lies too far from the next for the processor to foresee it.
template <class T>
HWY_INLINE void StreamStrip(const T* x, int64_t x_stride, T* y, int64_t y_stride, int64_t rows) {
  constexpr int64_t kWidth = kLine / sizeof(T);
  const int64_t whole = rows / kWidth * kWidth;
  for (int64_t r = 0; r < whole; r += kWidth) {
    for (int64_t next = r + kWidth; next < std::min(r + 2 * kWidth, rows); ++next) hwy::Prefetch(x + next * x_stride);
    StreamSquare(x + r * x_stride, x_stride, y + r, y_stride);
  }
  hwy::FlushStream();
  for (int64_t c = 0; c < kWidth; ++c) {
    for (int64_t r = whole; r < rows; ++r) y[c * y_stride + r] = x[r * x_stride + c];
  }
}
#endif

// y[c][r] = x[r][c] for `rows` and `columns`; strides in elements. `stream`: y is larger than the caches.
template <class T>
HWY_INLINE void TransposeStrip(const T* x, int64_t x_stride, T* y, int64_t y_stride, int64_t rows, int64_t columns,
                               bool stream) {
#if HWY_TARGET != HWY_SCALAR
  const bool lines = reinterpret_cast<uintptr_t>(y) % kLine == 0 && y_stride * sizeof(T) % kLine == 0;
  if (stream && lines && columns == static_cast<int64_t>(kLine / sizeof(T)))
    return StreamStrip(x, x_stride, y, y_stride, rows);
#endif
  constexpr int64_t kN = 16 / sizeof(T);
#if HWY_TARGET != HWY_SCALAR
  if (x_stride == columns && (columns == 2 || columns == 3)) {
    const int64_t done = FromPixels(x, y, y_stride, columns, rows);
    x += done * x_stride, y += done, rows -= done;
  } else if (y_stride == rows && (rows == 2 || rows == 3)) {
    const int64_t done = ToPixels(x, x_stride, y, rows, columns);
    x += done, y += done * y_stride, columns -= done;
  }
#endif
  const int64_t whole_rows = rows / kN * kN, whole_columns = columns / kN * kN;
  for (int64_t r = 0; r < whole_rows; r += kN) {
    FetchAhead<kN>(x + r * x_stride, x_stride);
    for (int64_t c = 0; c < whole_columns; c += kN)
      TransposeSquare(x + r * x_stride + c, x_stride, y + c * y_stride + r, y_stride);
  }
  for (int64_t c = 0; c < columns; ++c) {
    for (int64_t r = c < whole_columns ? whole_rows : 0; r < rows; ++r) y[c * y_stride + r] = x[r * x_stride + c];
  }
}

void TransposeStripOf1(const void* x, int64_t x_stride, void* y, int64_t y_stride, int64_t rows, int64_t columns,
                       bool stream) {
  TransposeStrip(static_cast<const uint8_t*>(x), x_stride, static_cast<uint8_t*>(y), y_stride, rows, columns, stream);
}
void TransposeStripOf2(const void* x, int64_t x_stride, void* y, int64_t y_stride, int64_t rows, int64_t columns,
                       bool stream) {
  TransposeStrip(static_cast<const uint16_t*>(x), x_stride, static_cast<uint16_t*>(y), y_stride, rows, columns, stream);
}
void TransposeStripOf4(const void* x, int64_t x_stride, void* y, int64_t y_stride, int64_t rows, int64_t columns,
                       bool stream) {
  TransposeStrip(static_cast<const uint32_t*>(x), x_stride, static_cast<uint32_t*>(y), y_stride, rows, columns, stream);
}
void TransposeStripOf8(const void* x, int64_t x_stride, void* y, int64_t y_stride, int64_t rows, int64_t columns,
                       bool stream) {
  TransposeStrip(static_cast<const uint64_t*>(x), x_stride, static_cast<uint64_t*>(y), y_stride, rows, columns, stream);
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
                           int64_t rows, int64_t columns, bool stream) {
  switch (element_size) {
    case 1:
      return HWY_DYNAMIC_DISPATCH(TransposeStripOf1)(x, x_stride, y, y_stride, rows, columns, stream);
    case 2:
      return HWY_DYNAMIC_DISPATCH(TransposeStripOf2)(x, x_stride, y, y_stride, rows, columns, stream);
    case 4:
      return HWY_DYNAMIC_DISPATCH(TransposeStripOf4)(x, x_stride, y, y_stride, rows, columns, stream);
    default:
      return HWY_DYNAMIC_DISPATCH(TransposeStripOf8)(x, x_stride, y, y_stride, rows, columns, stream);
  }
}

}  // namespace mslua
#endif  // HWY_ONCE
