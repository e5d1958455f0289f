// The range of a number that a user gives.
#pragma once

#include <string>

#include "absl/types/optional.h"

namespace mslua {

// The values that a number may have; absent: no limit.
struct Limits {
  absl::optional<double> min, above, max, below;
};
inline Limits AtLeast(double v) { return {v, {}, {}, {}}; }
inline Limits Above(double v) { return {{}, v, {}, {}}; }
inline Limits AtMost(double v) { return {{}, {}, v, {}}; }
inline Limits Between(double low, double high) { return {low, {}, high, {}}; }
inline Limits Fraction() { return {0, {}, {}, 1}; }  // at least 0 and below 1

// "at least 0 and below 1"; empty: there is no limit.
std::string LimitWords(const Limits& limits);
// Whether v is within; NaN is not.
bool Within(const Limits& limits, double v);
// "expected 0 or more" where v is outside, or NaN; empty: it is within.
std::string LimitProblem(const Limits& limits, double v);

}  // namespace mslua
