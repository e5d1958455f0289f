// Products of matrices, summed in f64 where they are f64 and else in f32, whose operands are copied into panels that
// the innermost loop reads one element after another (Goto and van de Geijn, "Anatomy of high-performance matrix
// multiplication", 2008).
#pragma once

#include <cstdint>

#include "core/base/dtype.h"

namespace mslua {

// y[i, j] = sum over l of a[i, l] * b[l, j] for i < m, j < n, l < k. Strides in elements; a and b are dense along one
// of their two dimensions, y along j.
struct PanelProduct {
  int64_t m, n, k;
  int64_t a_row, a_column;  // of a, from i to i + 1 and from l to l + 1
  int64_t b_row, b_column;  // of b, from l to l + 1 and from j to j + 1
  int64_t y_row;            // of y, from i to i + 1
  bool adds = false;        // to what y holds
};

// Bytes of the memory for panels that a call with operands of that type needs, aligned to 64.
int64_t PanelBytes(const PanelProduct& p, DType operands);

// On the calling thread. Each element is summed in the order of l, in blocks of a fixed length, whatever m and n are.
void PanelMatmul(const PanelProduct& p, const float* a, const float* b, float* y, void* panels);
void PanelMatmul(const PanelProduct& p, const double* a, const double* b, double* y, void* panels);
void PanelMatmul(const PanelProduct& p, const BF16* a, const BF16* b, float* y, void* panels);

}  // namespace mslua
