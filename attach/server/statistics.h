// Statistics of a tensor, computed where it lies.
#pragma once

#include <cstdint>
#include <string>

#include "core/base/shape.h"

namespace mslua::endpoint {

// Mean, deviation, extremes and norm are of the finite elements; NaN where there is none.
struct Statistics {
  int64_t elements = 0, zeros = 0, nans = 0, infinities = 0;
  double mean = 0, deviation = 0, least = 0, most = 0, norm = 0;
  uint32_t crc = 0;  // CRC-32C of the bytes
};
Statistics StatisticsOf(const TensorView& tensor);

// "mean 0.412  std 0.96  min 0  max 14.2  |x| 31.2  zero 63.1%  nan 0  inf 0"; where some elements are not finite, it
// says of how many the numbers are.
std::string ToString(const Statistics& s);
// A JSON object of the same.
std::string ToJson(const Statistics& s);

}  // namespace mslua::endpoint
