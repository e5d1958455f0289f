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
#include "core/op/special_functions.h"
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
  const V32 found = hn::IfThenElse(hn::Lt(hn::Abs(lost), one), hn::Add(y, lost), y);
  return hn::IfThenElse(hn::Eq(x, hn::Zero(d)), x, found);  // -0 stays
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

// table[index], each index below ErfTable::kPieces: a permutation takes less time than a gather.
HWY_INLINE V32 LookUp(const float* table, hn::Vec<hn::RebindToSigned<F32>> index) {
  static_assert(ErfTable::kPieces == 8, "a table is a vector of 256 bits");
#if HWY_TARGET <= HWY_AVX3
  return V32{_mm512_permutexvar_ps(index.raw, _mm512_castps256_ps512(_mm256_load_ps(table)))};
#elif HWY_TARGET == HWY_AVX2
  return V32{_mm256_permutevar8x32_ps(_mm256_load_ps(table), index.raw)};
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

// (e^x - e^-x) / 2: from e^x - 1 where the difference would lose digits, elsewhere from e^(x / 2), which stays finite.
HWY_INLINE V32 Sinh(V32 x) {
  const F32 d;
  const V32 one = hn::Set(d, 1.0f), half = hn::Set(d, 0.5f), a = hn::Abs(x);
  const V32 t = Expm1(hn::Min(a, one)), h = Exp(hn::Mul(half, a));
  const V32 small = hn::Mul(half, hn::Add(t, hn::Div(t, hn::Add(t, one))));
  const V32 large = hn::Sub(hn::Mul(hn::Mul(half, h), h), hn::Div(hn::Div(half, h), h));
  return hn::CopySign(hn::IfThenElse(hn::Lt(a, one), small, large), x);
}
HWY_INLINE V32 Cosh(V32 x) {
  const F32 d;
  const V32 half = hn::Set(d, 0.5f), h = Exp(hn::Mul(half, hn::Abs(x)));
  return hn::Add(hn::Mul(hn::Mul(half, h), h), hn::Div(hn::Div(half, h), h));
}

// Beyond this number 1 and x^2 + 1 are x^2, whose root is x.
constexpr float kRootIsItself = 1e8f;
constexpr float kLogOf2 = 0.6931471806f;

HWY_INLINE V32 Asinh(V32 x) {
  const F32 d;
  const V32 one = hn::Set(d, 1.0f), a = hn::Abs(x), root = hn::Sqrt(hn::MulAdd(a, a, one));
  const V32 small = Log1p(hn::Add(a, hn::Div(hn::Mul(a, a), hn::Add(one, root))));
  const V32 large = hn::Add(Log(a), hn::Set(d, kLogOf2));
  return hn::CopySign(hn::IfThenElse(hn::Gt(a, hn::Set(d, kRootIsItself)), large, small), x);
}
HWY_INLINE V32 Acosh(V32 x) {
  const F32 d;
  const V32 t = hn::Sub(x, hn::Set(d, 1.0f)), root = hn::Sqrt(hn::Mul(t, hn::Add(t, hn::Set(d, 2.0f))));
  const V32 large = hn::Add(Log(x), hn::Set(d, kLogOf2));
  const V32 found = hn::IfThenElse(hn::Gt(x, hn::Set(d, kRootIsItself)), large, Log1p(hn::Add(t, root)));
  return hn::IfThenElse(hn::Lt(x, hn::Set(d, 1.0f)), hn::NaN(d), found);
}
HWY_INLINE V32 Atanh(V32 x) {
  const F32 d;
  const V32 a = hn::Abs(x);
  return hn::CopySign(hn::Mul(hn::Set(d, 0.5f), Log1p(hn::Div(hn::Add(a, a), hn::Sub(hn::Set(d, 1.0f), a)))), x);
}

// The angle of the point (x, y): of the smaller coordinate over the larger one, then by octants.
HWY_INLINE V32 Atan2(V32 y, V32 x) {
  const F32 d;
  const V32 a = hn::Abs(y), b = hn::Abs(x), most = hn::Max(a, b), least = hn::Min(a, b);
  const V32 ratio = hn::IfThenElse(hn::Eq(a, b), hn::Set(d, 1.0f), hn::Div(least, most));
  V32 angle = hn::Atan(d, hn::IfThenZeroElse(hn::Eq(most, hn::Zero(d)), ratio));
  angle = hn::IfThenElse(hn::Gt(a, b), hn::Sub(hn::Set(d, 1.5707963268f), angle), angle);
  const auto left = hn::Lt(hn::CopySign(hn::Set(d, 1.0f), x), hn::Zero(d));
  angle = hn::CopySign(hn::IfThenElse(left, hn::Sub(hn::Set(d, 3.1415926536f), angle), angle), y);
  // A NaN passes through: Max and Min above may have dropped it.
  return hn::IfThenElse(hn::And(hn::Eq(x, x), hn::Eq(y, y)), angle, hn::Add(x, y));
}

// The fits of ErfInv of core/op/special_functions.h, which are good for f32.
HWY_INLINE V32 ErfInv(V32 y) {
  const F32 d;
  const V32 one = hn::Set(d, 1.0f);
  const V32 w = hn::Neg(Log(hn::Mul(hn::Sub(one, y), hn::Add(one, y))));
  const V32 near =
      Polynomial(hn::Sub(w, hn::Set(d, 2.5f)), 2.81022636e-08f, 3.43273939e-07f, -3.5233877e-06f, -4.39150654e-06f,
                 0.00021858087f, -0.00125372503f, -0.00417768164f, 0.246640727f, 1.50140941f);
  const V32 far = Polynomial(hn::Sub(hn::Sqrt(w), hn::Set(d, 3.0f)), -0.000200214257f, 0.000100950558f, 0.00134934322f,
                             -0.00367342844f, 0.00573950773f, -0.0076224613f, 0.00943887047f, 1.00167406f, 2.83297682f);
  const V32 x = hn::Mul(hn::IfThenElse(hn::Lt(w, hn::Set(d, 5.0f)), near, far), y);
  return hn::IfThenElse(hn::Eq(hn::Abs(y), one), hn::Mul(y, hn::Inf(d)), x);
}

// f of each element, or of each pair of elements, by a function of numbers in double precision.
template <class F>
HWY_INLINE V32 OneByOne(V32 x, F f) {
  const F32 d;
  HWY_ALIGN float lanes[hn::MaxLanes(d)];
  hn::Store(x, d, lanes);
  for (size_t i = 0; i < hn::Lanes(d); ++i) lanes[i] = static_cast<float>(f(lanes[i]));
  return hn::Load(d, lanes);
}
template <class F>
HWY_INLINE V32 OneByOne(V32 x, V32 y, F f) {
  const F32 d;
  HWY_ALIGN float lanes[hn::MaxLanes(d)], others[hn::MaxLanes(d)];
  hn::Store(x, d, lanes);
  hn::Store(y, d, others);
  for (size_t i = 0; i < hn::Lanes(d); ++i) lanes[i] = static_cast<float>(f(lanes[i], others[i]));
  return hn::Load(d, lanes);
}

HWY_INLINE V32 LogGamma(V32 x) {
  return OneByOne(x, [](double v) { return mslua::LogGamma(v); });
}
HWY_INLINE V32 Polygamma(V32 n, V32 x) {
  return OneByOne(n, x, [](double order, double v) { return mslua::Polygamma(order, v); });
}

// Whether the quotients x / y are so small that f32 has remainders and whole quotients without error, and one product
// is rounded together with a difference.
HWY_INLINE bool HaveSmallQuotients(V32 x, V32 y) {
#if HWY_NATIVE_FMA
  const F32 d;
  const auto small = hn::Lt(hn::Abs(hn::Div(x, y)), hn::Set(d, 2097152.0f));
  return HWY_LIKELY(hn::AllTrue(d, hn::And(small, hn::Lt(hn::Abs(y), hn::Inf(d)))));
#else
  return false;
#endif
}

// x - q y for the quotient q rounded toward 0. The rounded quotient is at most 1 too large.
HWY_INLINE V32 SmallRemainder(V32 x, V32 y) {
  const F32 d;
  const V32 r = hn::NegMulAdd(hn::Trunc(hn::Div(x, y)), y, x);
  const auto past = hn::Lt(hn::Mul(r, hn::CopySign(hn::Set(d, 1.0f), x)), hn::Zero(d));
  return hn::CopySign(hn::IfThenElse(past, hn::Add(r, hn::CopySign(y, x)), r), x);
}
HWY_INLINE V32 Remainder(V32 x, V32 y) {
  if (HaveSmallQuotients(x, y)) return SmallRemainder(x, y);
  return OneByOne(x, y, [](float a, float b) { return std::fmod(a, b); });
}

// Whether the quotient rounded down is one less than that rounded toward 0, of which r is the remainder.
HWY_INLINE hn::Mask<F32> RoundsDown(V32 r, V32 y) {
  const V32 zero = hn::Zero(F32());
  return hn::AndNot(hn::Eq(r, zero), hn::Xor(hn::Lt(r, zero), hn::Lt(y, zero)));
}

// x - q y for the quotient rounded down: of the sign of y, as in Python.
HWY_INLINE V32 FloorRemainder(V32 x, V32 y) {
  const V32 r = Remainder(x, y);
  return hn::IfThenElse(RoundsDown(r, y), hn::Add(r, y), r);
}

// x / y rounded toward 0, and rounded down, as if x / y were exact.
HWY_INLINE V32 TruncatedQuotient(V32 x, V32 y) {
  if (!HaveSmallQuotients(x, y)) return OneByOne(x, y, QuotientToZero);
  return hn::CopySign(hn::Round(hn::Div(hn::Sub(x, SmallRemainder(x, y)), y)), hn::Div(x, y));
}
HWY_INLINE V32 FloorQuotient(V32 x, V32 y) {
  if (!HaveSmallQuotients(x, y)) return OneByOne(x, y, QuotientDown);
  const V32 r = SmallRemainder(x, y), toward_zero = hn::Round(hn::Div(hn::Sub(x, r), y));
  const V32 whole = hn::Sub(toward_zero, hn::IfThenElseZero(RoundsDown(r, y), hn::Set(F32(), 1.0f)));
  return hn::CopySign(whole, hn::Div(x, y));
}

}  // namespace HWY_NAMESPACE
}  // namespace mslua
HWY_AFTER_NAMESPACE();

#endif
