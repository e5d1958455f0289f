#include "core/base/number.h"

#include <cmath>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"

namespace mslua {
namespace {

template <class T>
Status CheckRange(DType dtype, double v) {
  using Limits = std::numeric_limits<T>;
  // One past the largest is a power of two, which a double holds; the largest of int64 it does not.
  const double end = std::ldexp(1.0, Limits::digits);
  if (std::trunc(v) >= static_cast<double>(Limits::min()) && std::trunc(v) < end) return absl::OkStatus();
  // A whole number that a double holds is shown with all its digits.
  const bool whole = v == std::trunc(v) && std::abs(v) < std::ldexp(1.0, std::numeric_limits<double>::digits);
  const std::string text = whole ? absl::StrCat(static_cast<int64_t>(v)) : absl::StrCat(v);
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

Status CheckNumber(absl::string_view name, DType dtype, double v) {
  const Status held = CheckHolds(dtype, v);
  if (!held.ok()) return absl::InvalidArgumentError(absl::StrCat(name, ": ", held.message()));
  if (!IsInteger(dtype) || v == std::trunc(v)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, ": the number ", v, " is not in ", LongName(dtype), ", which holds whole numbers"));
}

}  // namespace mslua
