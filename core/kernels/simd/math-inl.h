// Functions of vectors of f32, for all numbers, infinities and NaN. Included by files that are compiled once for each
// instruction set (hwy/foreach_target.h).
#if defined(MSLUA_OPS_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MSLUA_OPS_MATH_INL_H_
#undef MSLUA_OPS_MATH_INL_H_
#else
#define MSLUA_OPS_MATH_INL_H_
#endif

#include <cmath>

#include "core/kernels/simd/erf_table.h"
#include "core/kernels/simd/simd-inl.h"
#include "hwy/contrib/math/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mslua {
namespace HWY_NAMESPACE {

// The polynomial with these coefficients, the highest power's first. A loop over them would stay one at -O2.
template <class... Coefficients>
HWY_INLINE V32 Polynomial(V32 x, float highest, Coefficients... others) {
  V32 p = hn::Set(F32(), highest);
  ((p = hn::MulAdd(p, x, hn::Set(F32(), others))), ...);
  return p;
}

// 1.5 * 2^23: sums with it are rounded to whole numbers, which their last bits are.
constexpr float kWhole = 12582912.0f;

// 2^x for x <= 127 to 2 units in the last place; 0 below -126. NaN stays NaN.
HWY_INLINE V32 Exp2(V32 x) {
  const F32 d;
  // 127 makes the last bits the exponent of 2^x.
  const V32 whole = hn::Set(d, kWhole + 127.0f);
  const V32 shifted = hn::Add(x, whole), r = hn::Sub(x, hn::Sub(shifted, whole));
  const V32 p = Polynomial(r, 1.535336188319500e-4f, 1.339887440266574e-3f, 9.618437357674640e-3f,
                           5.550332471162809e-2f, 2.402264791363012e-1f, 6.931472028550421e-1f, 1.0f);
  const V32 power = hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(U32(), shifted)));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -126.0f)), hn::Mul(p, power));
}

// e^x = 2^n e^r, where n is the whole number nearest to x / ln 2; a polynomial of our own fit, to 2 units in the last
// place. 0 where the result would be denormal.
HWY_INLINE V32 Exp(V32 x) {
  const F32 d;
  const V32 whole = hn::Set(d, kWhole);
  const V32 shifted = hn::MulAdd(x, hn::Set(d, 1.44269504f), whole), n = hn::Sub(shifted, whole);
  // ln 2 as the difference of two numbers, products of the first of which are exact.
  V32 r = hn::NegMulAdd(n, hn::Set(d, 0.693359375f), x);
  r = hn::MulAdd(n, hn::Set(d, 2.12194440e-4f), r);
  const V32 p = Polynomial(r, 0.0013814320554956794f, 0.00836885068565607f, 0.041668400168418884f, 0.1666651964187622f,
                           0.4999999403953552f, 1.0f, 1.0f);
  const auto bits = hn::Add(hn::BitCast(U32(), p), hn::ShiftLeft<23>(hn::BitCast(U32(), shifted)));
  const V32 y = hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -87.33654f)), hn::BitCast(d, bits));
  // Too large for f32, or NaN.
  return hn::IfThenElse(hn::Le(x, hn::Set(d, 88.72283f)), y, hn::Mul(x, hn::Inf(d)));
}

HWY_INLINE V32 Sigmoid(V32 x) {
  const V32 one = hn::Set(F32(), 1.0f);
  return hn::Div(one, hn::Add(one, Exp(hn::Neg(x))));
}

// Highway's is for positive numbers.
HWY_INLINE V32 Log(V32 x) {
  const F32 d;
  const V32 zero = hn::Zero(d);
  V32 y = hn::Log(d, x);
  y = hn::IfThenElse(hn::Eq(x, zero), hn::Neg(hn::Inf(d)), y);
  y = hn::IfThenElse(hn::Eq(x, hn::Inf(d)), x, y);
  y = hn::IfThenElse(hn::Lt(x, zero), hn::NaN(d), y);
  return hn::IfThenElse(hn::Eq(x, x), y, x);
}

// log(1 + x) = log(u) + (x - (u - 1)) / u, where u is 1 + x rounded: the second term is what rounding lost. Where u is
// 0, infinite or NaN, log(u) alone is the result.
HWY_INLINE V32 Log1p(V32 x) {
  const F32 d;
  const V32 one = hn::Set(d, 1.0f), u = hn::Add(x, one), y = Log(u);
  const V32 lost = hn::Div(hn::Sub(x, hn::Sub(u, one)), u);
  return hn::IfThenElse(hn::Lt(hn::Abs(lost), one), hn::Add(y, lost), y);
}

// e^x - 1 = 2^n (e^r - 1) + (2^n - 1), r as in Exp. The Taylor series of e^r - 1 begins with r, so that small results
// are as exact as large ones. Computed with half of 2^n, which stays finite.
HWY_INLINE V32 Expm1(V32 x) {
  const F32 d;
  // Beyond these limits the result is -1 or infinite.
  const V32 limited = hn::Min(hn::Max(x, hn::Set(d, -25.0f)), hn::Set(d, 89.0f));
  const V32 whole = hn::Set(d, kWhole);
  const V32 shifted = hn::MulAdd(limited, hn::Set(d, 1.44269504f), whole), n = hn::Sub(shifted, whole);
  V32 r = hn::NegMulAdd(n, hn::Set(d, 0.693359375f), limited);
  r = hn::MulAdd(n, hn::Set(d, 2.12194440e-4f), r);
  const V32 q = Polynomial(r, 1 / 40320.0f, 1 / 5040.0f, 1 / 720.0f, 1 / 120.0f, 1 / 24.0f, 1 / 6.0f, 0.5f);
  const V32 p = hn::MulAdd(hn::Mul(r, r), q, r);
  const V32 half = hn::Set(d, 0.5f);
  const V32 power = hn::BitCast(d, hn::Add(hn::BitCast(U32(), half), hn::ShiftLeft<23>(hn::BitCast(U32(), shifted))));
  const V32 y = hn::MulAdd(power, p, hn::Sub(power, half));
  // The sign of a zero is x's. A NaN passes through: the limits may have dropped it.
  return hn::IfThenElse(hn::Eq(x, x), hn::CopySign(hn::Add(y, y), x), x);
}

HWY_INLINE V32 Tanh(V32 x) { return hn::IfThenElse(hn::Eq(x, x), hn::Tanh(F32(), x), x); }

// table[index], each index below ErfTable::kPieces.
HWY_INLINE V32 LookUp(const float* table, hn::Vec<hn::RebindToSigned<F32>> index) {
#if HWY_TARGET <= HWY_AVX3
  static_assert(ErfTable::kPieces == 32, "a table is two vectors");
  return V32{_mm512_permutex2var_ps(_mm512_load_ps(table), index.raw, _mm512_load_ps(table + 16))};
#else
  return hn::GatherIndex(F32(), table, index);
#endif
}

// x g(|x|), where g(x) = erf(x) / x is even and without a pole, so that small results are as exact as large ones.
HWY_INLINE V32 Erf(V32 x) {
  const F32 d;
  const ErfTable& table = GetErfTable();
  const V32 a = hn::Abs(x);
  // From 4 on the product below is 1 or more.
  const V32 at = hn::Min(hn::Mul(a, hn::Set(d, ErfTable::kPieces / 4.0f)), hn::Set(d, ErfTable::kPieces - 1e-5f));
  const auto piece = hn::ConvertTo(hn::RebindToSigned<F32>(), at);
  const V32 r = hn::Sub(at, hn::ConvertTo(d, piece));
  V32 g = LookUp(table.power[ErfTable::kDegree], piece);
  for (int k = ErfTable::kDegree - 1; k >= 0; --k) g = hn::MulAdd(g, r, LookUp(table.power[k], piece));
  const V32 y = hn::CopySign(hn::Min(hn::Mul(a, g), hn::Set(d, 1.0f)), x);
  // A NaN passes through: Min above may have dropped it.
  return hn::IfThenElse(hn::Eq(x, x), y, x);
}

// Highway reduces arguments up to some 39 000; others, infinities and NaN are left to the library.
template <class F>
HWY_INLINE V32 ReducedOrNot(V32 x, V32 reduced, F library) {
  const F32 d;
  if (HWY_LIKELY(hn::AllTrue(d, hn::Lt(hn::Abs(x), hn::Set(d, 39000.0f))))) return reduced;
  HWY_ALIGN float lanes[hn::MaxLanes(d)];
  hn::Store(x, d, lanes);
  for (size_t i = 0; i < hn::Lanes(d); ++i) lanes[i] = library(lanes[i]);
  return hn::Load(d, lanes);
}
HWY_INLINE V32 Sin(V32 x) {
  return ReducedOrNot(x, hn::Sin(F32(), x), [](float v) { return std::sin(v); });
}
HWY_INLINE V32 Cos(V32 x) {
  return ReducedOrNot(x, hn::Cos(F32(), x), [](float v) { return std::cos(v); });
}

}  // namespace HWY_NAMESPACE
}  // namespace mslua
HWY_AFTER_NAMESPACE();

#endif
