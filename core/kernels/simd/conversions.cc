// The loops become vectors. Before the headers: what they define is inlined only where it is compiled in the same way.
#if !defined(__clang__)
#pragma GCC optimize("O3", "no-trapping-math")
#endif

#include "core/kernels/simd/conversions.h"

#include "core/base/target_clones.h"

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
MSLUA_CONVERSIONS(F16)

}  // namespace mslua
