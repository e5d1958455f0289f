// IEEE 754 binary16 (1 sign, 5 exponent of bias 15, 10 mantissa bits) from and to float, without branches, so that
// loops become vectors: each case is computed for every number, and one is taken.
#pragma once

#include <cstdint>

#include "absl/base/casts.h"

namespace mslua {

inline float FloatOfHalf(uint16_t half) {
  const uint32_t sign = (half & 0x8000u) << 16, rest = half & 0x7fffu;
  const uint32_t normal = (rest << 13) + (112u << 23);  // exponent bias 15 -> 127
  const uint32_t small = absl::bit_cast<uint32_t>(static_cast<float>(static_cast<int32_t>(rest)) * 0x1p-24f);
  const uint32_t not_finite = 0x7f800000u | ((rest & 0x3ffu) << 13);
  const uint32_t finite = rest < 0x400u ? small : normal;
  return absl::bit_cast<float>(sign | (rest >= 0x7c00u ? not_finite : finite));
}

// Rounds to nearest even; overflow gives infinity, NaN one NaN.
inline uint16_t HalfOfFloat(float f) {
  const auto bits = absl::bit_cast<uint32_t>(f);
  const uint32_t sign = (bits >> 16) & 0x8000u, size = bits & 0x7fffffffu;
  const uint32_t normal = (size + 0xc8000fffu + ((size >> 13) & 1u)) >> 13;  // exponent bias 127 -> 15, half an ulp
  // The adder rounds at 2^-24.
  const uint32_t small = absl::bit_cast<uint32_t>(absl::bit_cast<float>(size) + 0.5f) - 0x3f000000u;
  uint32_t half = size < 0x38800000u ? small : normal;
  half = size >= 0x477ff000u ? 0x7c00u : half;  // rounds to 65536 or more
  half = size > 0x7f800000u ? 0x7e00u : half;
  return static_cast<uint16_t>(sign | half);
}

}  // namespace mslua
