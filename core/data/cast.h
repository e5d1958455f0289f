// What TypeCast makes of a number.
#pragma once

#include <utility>

#include "core/base/dtype.h"
#include "core/base/status.h"

namespace mslua::data {

// The least and the largest number of an integer type; of int64 those that a double holds.
std::pair<double, double> RangeOf(DType integer);

// `value`, a number of type `from`, as TypeCast makes it one of type `to`. Integers are truncated towards zero. An
// error for NaN, for integers outside the range of `to`, and for whole numbers that `from` does not have all of.
StatusOr<double> CastNumber(double value, DType from, DType to);

}  // namespace mslua::data
