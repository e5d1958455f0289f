// What reductions begin with, and how two elements become one.
#pragma once

#include <limits>

#include "core/base/wrapping.h"
#include "core/op/factor_rule.h"

namespace mslua {

template <class C>
constexpr C Start(Reduction kind) {
  switch (kind) {
    case Reduction::kSum:
      return C{0};
    case Reduction::kProd:
      return C{1};
    case Reduction::kMax:
      return std::numeric_limits<C>::has_infinity ? -std::numeric_limits<C>::infinity()
                                                  : std::numeric_limits<C>::lowest();
    case Reduction::kMin:
      return std::numeric_limits<C>::has_infinity ? std::numeric_limits<C>::infinity() : std::numeric_limits<C>::max();
  }
  __builtin_unreachable();
}

// NaN wins over every number. Integers wrap round, as in all operators.
template <Reduction kKind, class C>
inline C Combine(C a, C b) {
  if constexpr (kKind == Reduction::kSum)
    return Plus(a, b);
  else if constexpr (kKind == Reduction::kProd)
    return Times(a, b);
  else if constexpr (kKind == Reduction::kMax)
    return a > b || a != a ? a : b;
  else
    return a < b || a != a ? a : b;
}

}  // namespace mslua
