#include "core/kernels/simd/panel_matmul.h"

#include <algorithm>

#include "core/base/round_up.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/kernels/simd/panel_matmul.cc"
// foreach_target.h first: it includes this file once for each instruction set.
// clang-format off
#include "hwy/foreach_target.h"
#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "core/kernels/simd/simd-inl.h"
#include "core/kernels/simd/transpose_square-inl.h"
// clang-format on

#ifndef MSLUA_PANEL_MATMUL_SIZES
#define MSLUA_PANEL_MATMUL_SIZES
namespace mslua {
namespace {

// A tile of y: rows, and the columns of two of the widest vectors of f32.
constexpr int64_t kTileRows = 6;
constexpr int64_t kMostColumns = 32;
// A panel of b, kDepth of its rows, stays in the first-level cache; a block of a, kRows of its rows, in the second.
constexpr int64_t kDepth = 256;
constexpr int64_t kRows = 16 * kTileRows;
constexpr int64_t kColumns = 1024;  // of b that are copied at once

}  // namespace
}  // namespace mslua
#endif

HWY_BEFORE_NAMESPACE();
namespace mslua {
namespace HWY_NAMESPACE {

// S: of sums and of panels, f32 or f64.
template <class S>
constexpr int64_t kLanes = HWY_LANES(S);
template <class S>
constexpr int64_t kWidth = 2 * kLanes<S>;  // columns of a tile

// A panel: kCount numbers of each of `depth` rows, side by side, zeros past the first `real`. The source is dense along
// these numbers.
template <int64_t kCount, class T, class S>
HWY_INLINE void CopyAcross(const T* from, int64_t row, int64_t depth, int64_t real, S* to) {
  if (real == kCount) {
    for (int64_t l = 0; l < depth; ++l) {
      for (int64_t i = 0; i < kCount; ++i) to[l * kCount + i] = static_cast<S>(from[l * row + i]);
    }
    return;
  }
  for (int64_t l = 0; l < depth; ++l) {
    for (int64_t i = 0; i < kCount; ++i) to[l * kCount + i] = i < real ? static_cast<S>(from[l * row + i]) : 0;
  }
}

// A square of 16 bytes of S a row.
template <class S>
HWY_INLINE void CopyTransposed(const S* from, int64_t row, S* to, int64_t to_row) {
  TransposeSquare(from, row, to, to_row);
}
HWY_INLINE void CopyTransposed(const BF16* from, int64_t row, float* to, int64_t to_row) {
  HWY_ALIGN float square[4 * 4];
  for (int64_t r = 0; r < 4; ++r) {
    for (int64_t c = 0; c < 4; ++c) square[4 * r + c] = static_cast<float>(from[r * row + c]);
  }
  TransposeSquare(square, 4, to, to_row);
}

// The same of a source that is dense along the depth; `row` is from one of the `real` numbers to the next.
template <int64_t kCount, class T, class S>
HWY_INLINE void CopyAlong(const T* from, int64_t row, int64_t depth, int64_t real, S* to) {
  constexpr int64_t kSide = 16 / sizeof(S);
  int64_t i = 0;
  for (; i + kSide <= real; i += kSide) {
    const T* const rows = from + i * row;
    int64_t l = 0;
    for (; l + kSide <= depth; l += kSide) CopyTransposed(rows + l, row, to + l * kCount + i, kCount);
    for (; l < depth; ++l) {
      for (int64_t r = 0; r < kSide; ++r) to[l * kCount + i + r] = static_cast<S>(rows[r * row + l]);
    }
  }
  for (; i < kCount; ++i) {
    for (int64_t l = 0; l < depth; ++l) to[l * kCount + i] = i < real ? static_cast<S>(from[i * row + l]) : 0;
  }
}

template <int64_t kCount, class T, class S>
HWY_INLINE void CopyPanel(const T* from, int64_t across, int64_t along, int64_t depth, int64_t real, S* to) {
  if (across == 1)
    CopyAcross<kCount>(from, along, depth, real, to);
  else
    CopyAlong<kCount>(from, across, depth, real, to);
}

// y's tile [rows, columns] = the product of two panels, or `adds` it.
template <class S>
HWY_INLINE void TileOfPanels(const S* a, const S* b, int64_t depth, bool adds, int64_t rows, int64_t columns,
                             int64_t y_row, S* y) {
  const hn::ScalableTag<S> d;
  using V = hn::Vec<decltype(d)>;
  constexpr int64_t kLanes = HWY_NAMESPACE::kLanes<S>, kWidth = HWY_NAMESPACE::kWidth<S>;
  for (int64_t r = 0; r < rows; ++r) {
    hwy::Prefetch(y + r * y_row);
    hwy::Prefetch(y + r * y_row + columns - 1);
  }
  V sum[kTileRows][2];
  HWY_UNROLL(6)
  for (int64_t r = 0; r < kTileRows; ++r) sum[r][0] = sum[r][1] = hn::Zero(d);
  HWY_UNROLL(2)
  for (int64_t l = 0; l < depth; ++l) {
    const V b0 = hn::Load(d, b + l * kWidth), b1 = hn::Load(d, b + l * kWidth + kLanes);
    HWY_UNROLL(6)
    for (int64_t r = 0; r < kTileRows; ++r) {
      const V x = hn::Set(d, a[l * kTileRows + r]);
      sum[r][0] = hn::MulAdd(x, b0, sum[r][0]);
      sum[r][1] = hn::MulAdd(x, b1, sum[r][1]);
    }
  }
  if (rows == kTileRows && columns == kWidth) {
    HWY_UNROLL(6)
    for (int64_t r = 0; r < kTileRows; ++r) {
      S* const to = y + r * y_row;
      if (adds) {
        sum[r][0] = hn::Add(sum[r][0], hn::LoadU(d, to));
        sum[r][1] = hn::Add(sum[r][1], hn::LoadU(d, to + kLanes));
      }
      hn::StoreU(sum[r][0], d, to);
      hn::StoreU(sum[r][1], d, to + kLanes);
    }
    return;
  }
  HWY_ALIGN S tile[kTileRows * kWidth];
  HWY_UNROLL(6)
  for (int64_t r = 0; r < kTileRows; ++r) {
    hn::Store(sum[r][0], d, tile + r * kWidth);
    hn::Store(sum[r][1], d, tile + r * kWidth + kLanes);
  }
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) {
      S& to = y[r * y_row + c];
      to = adds ? to + tile[r * kWidth + c] : tile[r * kWidth + c];
    }
  }
}

template <class T, class S>
void Product(const PanelProduct& p, const T* a, const T* b, S* y, S* a_panels, S* b_panels) {
  constexpr int64_t kWidth = HWY_NAMESPACE::kWidth<S>;
  for (int64_t j0 = 0; j0 < p.n; j0 += kColumns) {
    const int64_t columns = std::min(kColumns, p.n - j0);
    for (int64_t l0 = 0; l0 < p.k; l0 += kDepth) {
      const int64_t depth = std::min(kDepth, p.k - l0);
      for (int64_t j = 0; j < columns; j += kWidth) {
        CopyPanel<kWidth>(b + l0 * p.b_row + (j0 + j) * p.b_column, p.b_column, p.b_row, depth,
                          std::min(kWidth, columns - j), b_panels + j * depth);
      }
      for (int64_t i0 = 0; i0 < p.m; i0 += kRows) {
        const int64_t rows = std::min(kRows, p.m - i0);
        for (int64_t i = 0; i < rows; i += kTileRows) {
          CopyPanel<kTileRows>(a + (i0 + i) * p.a_row + l0 * p.a_column, p.a_row, p.a_column, depth,
                               std::min(kTileRows, rows - i), a_panels + i * depth);
        }
        for (int64_t j = 0; j < columns; j += kWidth) {
          for (int64_t i = 0; i < rows; i += kTileRows) {
            TileOfPanels(a_panels + i * depth, b_panels + j * depth, depth, p.adds || l0 > 0,
                         std::min(kTileRows, rows - i), std::min(kWidth, columns - j), p.y_row,
                         y + (i0 + i) * p.y_row + j0 + j);
          }
        }
      }
    }
  }
}

void ProductF32(const PanelProduct& p, const float* a, const float* b, float* y, float* a_panels, float* b_panels) {
  Product(p, a, b, y, a_panels, b_panels);
}
void ProductF64(const PanelProduct& p, const double* a, const double* b, double* y, double* a_panels,
                double* b_panels) {
  Product(p, a, b, y, a_panels, b_panels);
}
void ProductBF16(const PanelProduct& p, const BF16* a, const BF16* b, float* y, float* a_panels, float* b_panels) {
  Product(p, a, b, y, a_panels, b_panels);
}

}  // namespace HWY_NAMESPACE
}  // namespace mslua
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mslua {
namespace {

HWY_EXPORT(ProductF32);
HWY_EXPORT(ProductF64);
HWY_EXPORT(ProductBF16);

int64_t DepthOf(const PanelProduct& p) { return std::min(kDepth, p.k); }
// Elements of the panels of the left operand: whole lines of a cache.
int64_t LeftElements(const PanelProduct& p) {
  return RoundUp(RoundUp(std::min(kRows, p.m), kTileRows) * DepthOf(p), 16);
}

}  // namespace

int64_t PanelBytes(const PanelProduct& p, DType operands) {
  const int64_t right = RoundUp(std::min(kColumns, p.n), kMostColumns) * DepthOf(p);
  return (LeftElements(p) + right) * SizeOf(operands == DType::kF64 ? DType::kF64 : DType::kF32);
}

void PanelMatmul(const PanelProduct& p, const float* a, const float* b, float* y, void* panels) {
  float* const left = static_cast<float*>(panels);
  HWY_DYNAMIC_DISPATCH(ProductF32)(p, a, b, y, left, left + LeftElements(p));
}
void PanelMatmul(const PanelProduct& p, const double* a, const double* b, double* y, void* panels) {
  double* const left = static_cast<double*>(panels);
  HWY_DYNAMIC_DISPATCH(ProductF64)(p, a, b, y, left, left + LeftElements(p));
}
void PanelMatmul(const PanelProduct& p, const BF16* a, const BF16* b, float* y, void* panels) {
  float* const left = static_cast<float*>(panels);
  HWY_DYNAMIC_DISPATCH(ProductBF16)(p, a, b, y, left, left + LeftElements(p));
}

}  // namespace mslua
#endif  // HWY_ONCE
