// Bits of IEEE 754 binary16 (1 sign, 5 exponent of bias 15, 10 mantissa bits) and of float, without branches, so that
// loops over them become vectors: each case is computed for every number, and one is taken.
#pragma once

#include <cstdint>
#include <cstring>

namespace mslua {

inline uint32_t BitsOfFloat(float f) {
  uint32_t bits;
  std::memcpy(&bits, &f, sizeof bits);
  return bits;
}
inline float FloatOfBits(uint32_t bits) {
  float f;
  std::memcpy(&f, &bits, sizeof f);
  return f;
}

inline float FloatOfHalf(uint16_t half) {
  const uint32_t sign = (half & 0x8000u) << 16, rest = half & 0x7fffu;
  const uint32_t normal = (rest << 13) + (112u << 23);  // exponent bias 15 -> 127
  const uint32_t small = BitsOfFloat(static_cast<float>(static_cast<int32_t>(rest)) * 0x1p-24f);
  const uint32_t not_finite = 0x7f800000u | ((rest & 0x3ffu) << 13);
  const uint32_t finite = rest < 0x400u ? small : normal;
  return FloatOfBits(sign | (rest >= 0x7c00u ? not_finite : finite));
}

// Rounds to nearest even; overflow gives infinity, NaN one NaN.
inline uint16_t HalfOfFloat(float f) {
  const uint32_t bits = BitsOfFloat(f), sign = (bits >> 16) & 0x8000u, size = bits & 0x7fffffffu;
  const uint32_t normal = (size + 0xc8000fffu + ((size >> 13) & 1u)) >> 13;    // exponent bias 127 -> 15, half an ulp
  const uint32_t small = BitsOfFloat(FloatOfBits(size) + 0.5f) - 0x3f000000u;  // the adder rounds at 2^-24
  uint32_t half = size < 0x38800000u ? small : normal;
  half = size >= 0x477ff000u ? 0x7c00u : half;  // rounds to 65536 or more
  half = size > 0x7f800000u ? 0x7e00u : half;
  return static_cast<uint16_t>(sign | half);
}

}  // namespace mslua
