#include "core/base/dtype.h"

namespace mslua {
namespace {
constexpr const char* kNames[kNumDTypes] = {"f32", "f64", "bf16", "f16", "i32", "i64", "u8", "bool"};
constexpr const char* kLongNames[kNumDTypes] = {"float32", "float64", "bfloat16", "float16",
                                                "int32",   "int64",   "uint8",    "bool"};
}  // namespace

const char* Name(DType t) { return kNames[static_cast<int>(t)]; }
const char* LongName(DType t) { return kLongNames[static_cast<int>(t)]; }

std::optional<DType> ParseDType(absl::string_view name) {
  for (int i = 0; i < kNumDTypes; ++i) {
    if (name == kNames[i] || name == kLongNames[i]) return static_cast<DType>(i);
  }
  return std::nullopt;
}

// IEEE 754 binary16: 1 sign, 5 exponent (bias 15), 10 mantissa bits.
F16::F16(float f) {
  uint32_t u;
  std::memcpy(&u, &f, 4);
  const uint32_t sign = (u >> 16) & 0x8000u;
  u &= 0x7fffffffu;
  if (u > 0x7f800000u) {  // NaN
    bits = static_cast<uint16_t>(sign | 0x7e00u);
  } else if (u >= 0x477ff000u) {  // rounds to 65536 or more
    bits = static_cast<uint16_t>(sign | 0x7c00u);
  } else if (u < 0x38800000u) {  // subnormal half: let the float adder round at 2^-24
    float magnitude;
    std::memcpy(&magnitude, &u, 4);
    magnitude += 0.5f;
    uint32_t r;
    std::memcpy(&r, &magnitude, 4);
    bits = static_cast<uint16_t>(sign | (r - 0x3f000000u));
  } else {
    const uint32_t odd = (u >> 13) & 1;
    u += 0xc8000fffu + odd;  // exponent bias 127 -> 15, and half an ulp
    bits = static_cast<uint16_t>(sign | (u >> 13));
  }
}

F16::operator float() const {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t exponent = (bits >> 10) & 31u;
  const uint32_t mantissa = bits & 0x3ffu;
  uint32_t u;
  if (exponent == 31) {
    u = sign | 0x7f800000u | (mantissa << 13);
  } else if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return sign ? -magnitude : magnitude;
  } else {
    u = sign | ((exponent + 112u) << 23) | (mantissa << 13);
  }
  float f;
  std::memcpy(&f, &u, 4);
  return f;
}

double LoadAsDouble(DType t, const void* data, int64_t i) {
  return DispatchDType(t, [&](auto zero) {
    using T = decltype(zero);
    return static_cast<double>(static_cast<ComputeType<T>>(static_cast<const T*>(data)[i]));
  });
}

void StoreDouble(DType t, void* data, int64_t i, double value) {
  DispatchDType(t, [&](auto zero) {
    using T = decltype(zero);
    static_cast<T*>(data)[i] = static_cast<T>(static_cast<ComputeType<T>>(value));
  });
}

}  // namespace mslua
