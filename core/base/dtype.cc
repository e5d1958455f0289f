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
