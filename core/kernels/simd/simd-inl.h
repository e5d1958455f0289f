// Loads and stores of f32 and bf16 as vectors of f32, whole and partial. Included by files that are compiled once
// for each instruction set (hwy/foreach_target.h).
#if defined(MSLUA_OPS_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MSLUA_OPS_SIMD_INL_H_
#undef MSLUA_OPS_SIMD_INL_H_
#else
#define MSLUA_OPS_SIMD_INL_H_
#endif

#include <cstring>

#include "core/base/dtype.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace mslua {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::ScalableTag<float>;
using U16 = hn::Rebind<uint16_t, F32>;
using U32 = hn::RebindToUnsigned<F32>;
using V32 = hn::Vec<F32>;

inline V32 Widen(hn::Vec<U16> bits) { return hn::BitCast(F32(), hn::ShiftLeft<16>(hn::PromoteTo(U32(), bits))); }

#if HWY_TARGET <= HWY_AVX3
// Whether the processor has vcvtneps2bf16, which is newer than any target of Highway 1.0.
inline const bool kNarrows = __builtin_cpu_supports("avx512bf16");
#endif

// Round to nearest even; NaN stays NaN.
HWY_INLINE hn::Vec<U16> Narrow(V32 v) {
#if HWY_TARGET <= HWY_AVX3
  if (HWY_LIKELY(kNarrows)) {
    hn::Vec<U16> narrow;
    asm("vcvtneps2bf16 %1, %0" : "=v"(narrow.raw) : "v"(v.raw));
    return narrow;
  }
#endif
  const U32 d;
  const auto bits = hn::BitCast(d, v);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d, 1));
  const auto rounded = hn::ShiftRight<16>(hn::Add(hn::Add(bits, hn::Set(d, 0x7fff)), odd));
  const auto quiet = hn::Or(hn::ShiftRight<16>(bits), hn::Set(d, 0x40));
  const auto result = hn::IfThenElse(hn::RebindMask(d, hn::IsNaN(v)), quiet, rounded);
  return hn::DemoteTo(U16(), hn::BitCast(hn::RebindToSigned<U32>(), result));
}

inline V32 Load(const float* p) { return hn::LoadU(F32(), p); }
inline V32 Load(const BF16* p) { return Widen(hn::LoadU(U16(), reinterpret_cast<const uint16_t*>(p))); }
inline void Store(V32 v, float* p) { hn::StoreU(v, F32(), p); }
inline void Store(V32 v, BF16* p) { hn::StoreU(Narrow(v), U16(), reinterpret_cast<uint16_t*>(p)); }

// The first n elements, 0 < n < Lanes; zeros after them. Nothing beyond them is touched.
inline V32 LoadFirst(const float* p, size_t n) {
#if HWY_TARGET <= HWY_AVX2
  return hn::MaskedLoad(hn::FirstN(F32(), n), F32(), p);
#else
  HWY_ALIGN float buffer[HWY_MAX_BYTES / sizeof(float)] = {};
  std::memcpy(buffer, p, n * sizeof(float));
  return hn::Load(F32(), buffer);
#endif
}
inline V32 LoadFirst(const BF16* p, size_t n) {
  HWY_ALIGN uint16_t buffer[HWY_MAX_BYTES / sizeof(float)] = {};
  std::memcpy(buffer, p, n * sizeof(uint16_t));
  return Widen(hn::Load(U16(), buffer));
}
inline void StoreFirst(V32 v, float* p, size_t n) {
#if HWY_TARGET <= HWY_AVX2
  hn::BlendedStore(v, hn::FirstN(F32(), n), F32(), p);
#else
  HWY_ALIGN float buffer[HWY_MAX_BYTES / sizeof(float)];
  hn::Store(v, F32(), buffer);
  std::memcpy(p, buffer, n * sizeof(float));
#endif
}
inline void StoreFirst(V32 v, BF16* p, size_t n) {
  HWY_ALIGN uint16_t buffer[HWY_MAX_BYTES / sizeof(float)];
  hn::Store(Narrow(v), U16(), buffer);
  std::memcpy(p, buffer, n * sizeof(uint16_t));
}

// f(i, n) for the vectors that cover [0, count): n is Lanes but for the last. Inside, LoadN and StoreN.
template <class T>
HWY_INLINE V32 LoadN(const T* p, size_t n) {
  return n == hn::Lanes(F32()) ? Load(p) : LoadFirst(p, n);
}
template <class T>
HWY_INLINE void StoreN(V32 v, T* p, size_t n) {
  if (n == hn::Lanes(F32()))
    Store(v, p);
  else
    StoreFirst(v, p, n);
}
template <class F>
HWY_INLINE void ForEachVector(int64_t count, F f) {
  const int64_t lanes = hn::Lanes(F32());
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) f(i, static_cast<size_t>(lanes));
  if (i < count) f(i, static_cast<size_t>(count - i));
}

}  // namespace HWY_NAMESPACE
}  // namespace mslua
HWY_AFTER_NAMESPACE();

#endif
