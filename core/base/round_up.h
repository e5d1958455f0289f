// Division that rounds up: how many parts of a size hold everything, and the size of those parts together.
#pragma once

#include <cstdint>

namespace mslua {

// n / unit, rounded up. `n` is not negative, `unit` is positive, and n + unit fits 64 bits.
constexpr int64_t CeilDiv(int64_t n, int64_t unit) { return (n + unit - 1) / unit; }

// The least multiple of `unit` that is not below `n`, under the same conditions.
constexpr int64_t RoundUp(int64_t n, int64_t unit) { return CeilDiv(n, unit) * unit; }

}  // namespace mslua
