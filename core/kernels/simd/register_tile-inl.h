// The inner loop of matrix products that keep their sums in registers. Included by files that are compiled once for
// each instruction set (hwy/foreach_target.h).
#if defined(MSLUA_OPS_REGISTER_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MSLUA_OPS_REGISTER_TILE_INL_H_
#undef MSLUA_OPS_REGISTER_TILE_INL_H_
#else
#define MSLUA_OPS_REGISTER_TILE_INL_H_
#endif

#include "core/kernels/simd/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mslua {
namespace HWY_NAMESPACE {

// Rows and columns of a left operand, this many elements apart.
template <class T>
struct LeftOperand {
  const T* data;
  int64_t row, column;
};
// Rows of a right operand, dense, this many elements apart.
template <class T>
struct RightOperand {
  const T* data;
  int64_t row;
};

// sum [R, C vectors] = a [R, k] b [k, C vectors], of which `last` columns of the last vector are real. Loops over
// arrays of vectors are unrolled: where one is not, its array is memory, not registers.
template <int R, int C, class T>
HWY_INLINE void MultiplyTile(LeftOperand<T> a, RightOperand<T> b, int64_t k, size_t last, V32 (&sum)[R][C]) {
  const F32 d;
  const int64_t lanes = hn::Lanes(d);
  HWY_UNROLL(16)
  for (int r = 0; r < R; ++r) {
    HWY_UNROLL(16)
    for (int c = 0; c < C; ++c) sum[r][c] = hn::Zero(d);
  }
  for (int64_t l = 0; l < k; ++l) {
    const T* row = b.data + l * b.row;
    V32 v[C];
    HWY_UNROLL(16)
    for (int c = 0; c + 1 < C; ++c) v[c] = Load(row + c * lanes);
    v[C - 1] = LoadN(row + (C - 1) * lanes, last);
    HWY_UNROLL(16)
    for (int r = 0; r < R; ++r) {
      const V32 x = hn::Set(d, static_cast<float>(a.data[r * a.row + l * a.column]));
      HWY_UNROLL(16)
      for (int c = 0; c < C; ++c) sum[r][c] = hn::MulAdd(x, v[c], sum[r][c]);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace mslua
HWY_AFTER_NAMESPACE();

#endif
