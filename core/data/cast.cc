#include "core/data/cast.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace mslua::data {

std::pair<double, double> RangeOf(DType integer) {
  if (integer == DType::kU8) return {0, 255};
  if (integer == DType::kI32) return {std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max()};
  return {-0x1p63, 0x1p63 - 1024};
}

StatusOr<double> CastNumber(double value, DType from, DType to) {
  if (!IsInteger(to)) {
    alignas(8) char stored[8];
    StoreDouble(to, stored, 0, value);
    return LoadAsDouble(to, stored, 0);
  }
  const auto [least, largest] = RangeOf(to);
  if (std::isnan(value)) return absl::InvalidArgumentError(absl::StrCat("NaN, expected a number for ", LongName(to)));
  if (IsInteger(from) && (value < least || value > largest)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%.0f, expected %.0f to %.0f of %s", value, least, largest, LongName(to)));
  }
  // From here on, not every whole number is one of these types: another one may have been meant.
  const double exact = from == DType::kF32 ? 0x1p24 : 0x1p53;
  if (to != DType::kU8 && std::isfinite(value) && std::abs(value) >= exact) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%.0f in %s, which does not have all whole numbers from %.0f on; give the column as %s, such as "
        "ms.Tensor(values, ms.%s)",
        value, LongName(from), exact, LongName(to), LongName(to)));
  }
  return std::trunc(std::min(std::max(value, least), largest));
}

}  // namespace mslua::data
