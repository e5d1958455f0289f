// Matrix products too small for a library call: one thread, no set-up.
#pragma once

#include <cstdint>

#include "core/base/dtype.h"

namespace mslua {

// y[i, j] = sum over l of a[i, l] * b[l, j] for i < m, j < n, l < k. Strides in elements.
struct SmallProduct {
  int64_t m, n, k;
  int64_t a_row, a_column;  // of a, from i to i + 1 and from l to l + 1
  int64_t b_row;            // of b, from l to l + 1; along j it is dense
  int64_t y_row;            // of y, from i to i + 1; along j it is dense
};
void SmallMatmul(const SmallProduct& p, const float* a, const float* b, float* y);
void SmallMatmul(const SmallProduct& p, const BF16* a, const BF16* b, BF16* y);

// y[i, j] = sum over l of a[i, l] * b[j, l]: rows of a and b are dense, at these strides.
struct SmallDotProducts {
  int64_t m, n, k;
  int64_t a_row, b_row, y_row;
};
void SmallMatmulTransposed(const SmallDotProducts& p, const float* a, const float* b, float* y);
void SmallMatmulTransposed(const SmallDotProducts& p, const BF16* a, const BF16* b, BF16* y);

}  // namespace mslua
