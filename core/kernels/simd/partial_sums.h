// Sums that threads have made of their parts of the operands.
#pragma once

#include <cstdint>

#include "core/base/dtype.h"

namespace mslua {

// y[i] = the sum of parts[p * n + i] over all p, for i in [begin, end); y is f32 or bf16, rounded once.
void JoinSums(const float* parts, int64_t count, int64_t n, DType type, void* y, int64_t begin, int64_t end);

}  // namespace mslua
