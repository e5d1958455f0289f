#include "core/kernels/simd/small_matmul.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/kernels/simd/small_matmul.cc"
// foreach_target.h first: it includes this file once for each instruction set.
// clang-format off
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "core/kernels/simd/register_tile-inl.h"
#include "core/kernels/simd/simd-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace mslua {
namespace HWY_NAMESPACE {

// R rows and C vectors of y stay in registers; `last` columns of the last vector are real.
template <int R, int C, class T>
HWY_INLINE void Tile(const SmallProduct& p, const T* a, const T* b, T* y, size_t last) {
  const int64_t lanes = hn::Lanes(F32());
  V32 sum[R][C];
  MultiplyTile(LeftOperand<T>{a, p.a_row, p.a_column}, RightOperand<T>{b, p.b_row}, p.k, last, sum);
  HWY_UNROLL(16)
  for (int r = 0; r < R; ++r) {
    HWY_UNROLL(16)
    for (int c = 0; c < C; ++c)
      StoreN(sum[r][c], y + r * p.y_row + c * lanes, c + 1 < C ? static_cast<size_t>(lanes) : last);
  }
}

// As many rows as leave registers for the operands: 32 registers with AVX-512, 16 without.
template <int C, class T>
HWY_INLINE void Columns(const SmallProduct& p, const T* a, const T* b, T* y, size_t last) {
  constexpr int kRows = HWY_TARGET <= HWY_AVX3 && C < 4 ? 8 : 6;
  int64_t i = 0;
  for (; i + kRows <= p.m; i += kRows) Tile<kRows, C>(p, a + i * p.a_row, b, y + i * p.y_row, last);
  if (i + 4 <= p.m) {
    Tile<4, C>(p, a + i * p.a_row, b, y + i * p.y_row, last);
    i += 4;
  }
  a += i * p.a_row;
  y += i * p.y_row;
  switch (p.m - i) {
    case 3:
      return Tile<3, C>(p, a, b, y, last);
    case 2:
      return Tile<2, C>(p, a, b, y, last);
    case 1:
      return Tile<1, C>(p, a, b, y, last);
  }
}

template <class T>
void Product(const SmallProduct& p, const T* a, const T* b, T* y) {
  const int64_t lanes = hn::Lanes(F32());
  int64_t j = 0;
#if HWY_TARGET <= HWY_AVX3
  for (; j + 3 * lanes < p.n; j += 4 * lanes)
    Columns<4>(p, a, b + j, y + j, static_cast<size_t>(HWY_MIN(lanes, p.n - j - 3 * lanes)));
#endif
  for (; j + lanes < p.n; j += 2 * lanes) {
    Columns<2>(p, a, b + j, y + j, static_cast<size_t>(HWY_MIN(lanes, p.n - j - lanes)));
  }
  if (j < p.n) Columns<1>(p, a, b + j, y + j, static_cast<size_t>(p.n - j));
}

// One row of a with C rows of b.
template <int C, class T>
HWY_INLINE void Dots(const SmallDotProducts& p, const T* a, const T* b, T* y) {
  const F32 d;
  V32 sum[C];
  HWY_UNROLL(16)
  for (int c = 0; c < C; ++c) sum[c] = hn::Zero(d);
  ForEachVector(p.k, [&](int64_t l, size_t n) {
    const V32 x = LoadN(a + l, n);
    HWY_UNROLL(16)
    for (int c = 0; c < C; ++c) sum[c] = hn::MulAdd(x, LoadN(b + c * p.b_row + l, n), sum[c]);
  });
  for (int c = 0; c < C; ++c) y[c] = static_cast<T>(hn::GetLane(hn::SumOfLanes(d, sum[c])));
}

template <class T>
void DotProducts(const SmallDotProducts& p, const T* a, const T* b, T* y) {
  for (int64_t i = 0; i < p.m; ++i) {
    int64_t j = 0;
    for (; j + 4 <= p.n; j += 4) Dots<4>(p, a + i * p.a_row, b + j * p.b_row, y + i * p.y_row + j);
    for (; j < p.n; ++j) Dots<1>(p, a + i * p.a_row, b + j * p.b_row, y + i * p.y_row + j);
  }
}

void ProductF32(const SmallProduct& p, const float* a, const float* b, float* y) { Product(p, a, b, y); }
void ProductBF16(const SmallProduct& p, const BF16* a, const BF16* b, BF16* y) { Product(p, a, b, y); }
void DotProductsF32(const SmallDotProducts& p, const float* a, const float* b, float* y) { DotProducts(p, a, b, y); }
void DotProductsBF16(const SmallDotProducts& p, const BF16* a, const BF16* b, BF16* y) { DotProducts(p, a, b, y); }

}  // namespace HWY_NAMESPACE
}  // namespace mslua
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mslua {

HWY_EXPORT(ProductF32);
HWY_EXPORT(ProductBF16);
HWY_EXPORT(DotProductsF32);
HWY_EXPORT(DotProductsBF16);

void SmallMatmul(const SmallProduct& p, const float* a, const float* b, float* y) {
  HWY_DYNAMIC_DISPATCH(ProductF32)(p, a, b, y);
}
void SmallMatmul(const SmallProduct& p, const BF16* a, const BF16* b, BF16* y) {
  HWY_DYNAMIC_DISPATCH(ProductBF16)(p, a, b, y);
}
void SmallMatmulTransposed(const SmallDotProducts& p, const float* a, const float* b, float* y) {
  HWY_DYNAMIC_DISPATCH(DotProductsF32)(p, a, b, y);
}
void SmallMatmulTransposed(const SmallDotProducts& p, const BF16* a, const BF16* b, BF16* y) {
  HWY_DYNAMIC_DISPATCH(DotProductsBF16)(p, a, b, y);
}

}  // namespace mslua
#endif  // HWY_ONCE
