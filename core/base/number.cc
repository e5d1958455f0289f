#include "core/base/number.h"

#include <cmath>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"

namespace mslua {
namespace {

// Whether `v` is a whole number with all its digits in a double.
bool IsWhole(double v) {
  return v == std::trunc(v) && std::abs(v) < std::ldexp(1.0, std::numeric_limits<double>::digits);
}

template <class T>
Status CheckRange(DType dtype, double v) {
  using Limits = std::numeric_limits<T>;
  // One past the largest is a power of two, which a double holds; the largest of int64 it does not.
  const double end = std::ldexp(1.0, Limits::digits);
  if (std::trunc(v) >= static_cast<double>(Limits::min()) && std::trunc(v) < end) return absl::OkStatus();
  const std::string text = IsWhole(v) ? absl::StrCat(static_cast<int64_t>(v)) : absl::StrCat(v);
  return absl::InvalidArgumentError(absl::StrCat("the number ", text, " is not in ", LongName(dtype), ", which holds ",
                                                 Limits::min(), " to ", Limits::max()));
}

}  // namespace

Status CheckHolds(DType dtype, double v) {
  if (dtype == DType::kU8) return CheckRange<uint8_t>(dtype, v);
  if (dtype == DType::kI32) return CheckRange<int32_t>(dtype, v);
  if (dtype == DType::kI64) return CheckRange<int64_t>(dtype, v);
  return absl::OkStatus();
}

Status CheckUnrounded(DType dtype, double v) {
  if (dtype != DType::kF32 || !IsWhole(v)) return absl::OkStatus();
  const double kept = static_cast<double>(static_cast<float>(v));
  if (v == kept) return absl::OkStatus();
  const DType larger = CheckHolds(DType::kI32, v).ok() ? DType::kI32 : DType::kI64;
  return absl::InvalidArgumentError(absl::StrCat("the number ", static_cast<int64_t>(v), " would be rounded to ",
                                                 static_cast<int64_t>(kept), " by float32, the default: give a dtype, ",
                                                 "such as \"", LongName(larger), "\""));
}

Status CheckNumber(absl::string_view name, DType dtype, double v) {
  const Status held = CheckHolds(dtype, v);
  if (!held.ok()) return absl::InvalidArgumentError(absl::StrCat(name, ": ", held.message()));
  if (!IsInteger(dtype) || v == std::trunc(v)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, ": the number ", v, " is not in ", LongName(dtype), ", which holds whole numbers"));
}

}  // namespace mslua
