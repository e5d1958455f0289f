// The loops of layer_norm and rms_norm over Highway (core/ops/declare/row_norm.h says what they compute).
#pragma once

#include <cstdint>

namespace mslua {

struct RowNorm {
  int64_t rows = 0, size = 0;
  bool centred = false;
  double eps = 0;
};

// x, y, dy and result are f32 or bf16; mean and bias are null when rows are not centred.
struct RowNormForward {
  const void* x;
  const float *scale, *bias;
  void* y;
  float *mean, *rstd;
};
struct RowNormBackward {
  const void *dy, *x;
  const float *mean, *rstd, *scale;
  void* dx;
};

// Rows [begin, end).
void RunForward(bool bf16, const RowNorm& n, const RowNormForward& call, int64_t begin, int64_t end);
void RunGradInput(bool bf16, const RowNorm& n, const RowNormBackward& call, int64_t begin, int64_t end);
// sums: `size` sums for the scale, then as many for the bias.
void RunGradParams(bool bf16, const RowNorm& n, const RowNormBackward& call, float* sums, int64_t begin, int64_t end);

}  // namespace mslua
