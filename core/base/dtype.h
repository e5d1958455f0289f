// Element types of tensors. Little-endian in memory and in files.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/base/casts.h"
#include "absl/strings/string_view.h"
#include "core/base/half.h"

namespace mslua {

enum class DType : uint8_t { kF32, kF64, kBF16, kF16, kI32, kI64, kU8, kBool };
inline constexpr int kNumDTypes = 8;

// Bytes of an element.
constexpr int64_t SizeOf(DType t) {
  constexpr int64_t kSizes[kNumDTypes] = {4, 8, 2, 2, 4, 8, 1, 1};
  return kSizes[static_cast<int>(t)];
}

// "f32", "f64", "bf16", "f16", "i32", "i64", "u8", "bool": the IR's names.
const char* Name(DType t);
// "float32", ...: the users' names (ms.float32).
const char* LongName(DType t);
// Either kind of name; nothing when it is neither.
std::optional<DType> ParseDType(absl::string_view name);

constexpr bool IsFloat(DType t) { return t <= DType::kF16; }
constexpr bool IsInteger(DType t) { return t == DType::kI32 || t == DType::kI64 || t == DType::kU8; }

// Storage types: 16-bit floats are stored here and computed in f32.
struct BF16 {
  uint16_t bits = 0;
  BF16() = default;
  explicit BF16(float f);  // round to nearest even; NaN stays NaN
  operator float() const { return absl::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
};
struct F16 {
  uint16_t bits = 0;
  F16() = default;
  explicit F16(float f) : bits(HalfOfFloat(f)) {}  // round to nearest even; overflow gives infinity
  operator float() const { return FloatOfHalf(bits); }
};

inline BF16::BF16(float f) {
  const auto u = absl::bit_cast<uint32_t>(f);
  if ((u & 0x7fffffffu) > 0x7f800000u) {
    bits = static_cast<uint16_t>((u >> 16) | 0x40);
  } else {
    bits = static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1)) >> 16);
  }
}

template <class T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::kF32;
};
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::kF64;
};
template <>
struct DTypeOf<BF16> {
  static constexpr DType value = DType::kBF16;
};
template <>
struct DTypeOf<F16> {
  static constexpr DType value = DType::kF16;
};
template <>
struct DTypeOf<int32_t> {
  static constexpr DType value = DType::kI32;
};
template <>
struct DTypeOf<int64_t> {
  static constexpr DType value = DType::kI64;
};
template <>
struct DTypeOf<uint8_t> {
  static constexpr DType value = DType::kU8;
};
template <>
struct DTypeOf<bool> {
  static constexpr DType value = DType::kBool;
};

// Calls f(T{}) with the storage type of `t`:
//   DispatchDType(t, [&](auto zero) { using T = decltype(zero); ... });
template <class F>
decltype(auto) DispatchDType(DType t, F&& f) {
  switch (t) {
    case DType::kF32:
      return f(float{});
    case DType::kF64:
      return f(double{});
    case DType::kBF16:
      return f(BF16{});
    case DType::kF16:
      return f(F16{});
    case DType::kI32:
      return f(int32_t{});
    case DType::kI64:
      return f(int64_t{});
    case DType::kU8:
      return f(uint8_t{});
    case DType::kBool:
      return f(bool{});
  }
  __builtin_unreachable();
}

// The type that arithmetic on storage type T is done in by reference kernels.
template <class T>
struct ComputeTypeOf {
  using type = T;
};
template <>
struct ComputeTypeOf<BF16> {
  using type = float;
};
template <>
struct ComputeTypeOf<F16> {
  using type = float;
};
template <class T>
using ComputeType = typename ComputeTypeOf<T>::type;

// Element `i` of `data`, whatever its type, as a double, and back (rounding as C++ casts do).
double LoadAsDouble(DType t, const void* data, int64_t i);
void StoreDouble(DType t, void* data, int64_t i, double value);

}  // namespace mslua
