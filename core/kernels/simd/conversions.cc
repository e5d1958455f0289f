#include "core/kernels/simd/conversions.h"

#include <cstring>

#include "core/base/target_clones.h"

#if !defined(__clang__)
#pragma GCC optimize("O3", "no-trapping-math")
#endif

namespace mslua {

#define MSLUA_CONVERSIONS(T)                                            \
  MSLUA_VECTORS void ToFloats(const T* in, int64_t n, float* out) {     \
    for (int64_t i = 0; i < n; ++i) out[i] = static_cast<float>(in[i]); \
  }                                                                     \
  MSLUA_VECTORS void FromFloats(const float* in, int64_t n, T* out) {   \
    for (int64_t i = 0; i < n; ++i) out[i] = static_cast<T>(in[i]);     \
  }

MSLUA_CONVERSIONS(int32_t)
MSLUA_CONVERSIONS(int64_t)
MSLUA_CONVERSIONS(uint8_t)

namespace {

inline uint32_t BitsOf(float f) {
  uint32_t u;
  std::memcpy(&u, &f, sizeof u);
  return u;
}
inline float FloatOf(uint32_t u) {
  float f;
  std::memcpy(&f, &u, sizeof f);
  return f;
}

}  // namespace

// As F16 does it (core/base/dtype.cc), but each case for every element, of which one is taken: vectors have no
// branches.
MSLUA_VECTORS void ToFloats(const F16* in, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t bits = in[i].bits, sign = (bits & 0x8000u) << 16, rest = bits & 0x7fffu;
    const uint32_t normal = (rest << 13) + (112u << 23);
    const uint32_t small = BitsOf(static_cast<float>(static_cast<int32_t>(rest)) * 0x1p-24f);
    const uint32_t not_finite = 0x7f800000u | ((rest & 0x3ffu) << 13);
    const uint32_t finite = rest < 0x400u ? small : normal;
    out[i] = FloatOf(sign | (rest >= 0x7c00u ? not_finite : finite));
  }
}
MSLUA_VECTORS void FromFloats(const float* in, int64_t n, F16* out) {
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t u = BitsOf(in[i]), sign = (u >> 16) & 0x8000u, size = u & 0x7fffffffu;
    const uint32_t normal = (size + 0xc8000fffu + ((size >> 13) & 1u)) >> 13;
    const uint32_t small = BitsOf(FloatOf(size) + 0.5f) - 0x3f000000u;
    uint32_t bits = size < 0x38800000u ? small : normal;
    bits = size >= 0x477ff000u ? 0x7c00u : bits;
    bits = size > 0x7f800000u ? 0x7e00u : bits;
    out[i].bits = static_cast<uint16_t>(sign | bits);
  }
}

}  // namespace mslua
