// Integers, f16 and bf16 as f32 and back.
#pragma once

#include <cstdint>

#include "core/base/dtype.h"

namespace mslua {

void ToFloats(const int32_t* in, int64_t n, float* out);
void ToFloats(const int64_t* in, int64_t n, float* out);
void ToFloats(const uint8_t* in, int64_t n, float* out);
void ToFloats(const F16* in, int64_t n, float* out);
void ToFloats(const BF16* in, int64_t n, float* out);

// As static_cast does it.
void FromFloats(const float* in, int64_t n, int32_t* out);
void FromFloats(const float* in, int64_t n, int64_t* out);
void FromFloats(const float* in, int64_t n, uint8_t* out);
void FromFloats(const float* in, int64_t n, F16* out);
void FromFloats(const float* in, int64_t n, BF16* out);

}  // namespace mslua
