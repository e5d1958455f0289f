// Reductions by the compiler's vectors: of the types that reduction.cc has no vectors of its own for, and of runs that
// are shorter than a vector.
#pragma once

#include <cstdint>

#include "core/op/factor_rule.h"

namespace mslua {

// results[c] = the reduction of x[r * stride + c] over `rows` rows, for c below n.
void ReduceRows(Reduction kind, const double* x, int64_t rows, int64_t stride, int64_t n, double* results);
void ReduceRows(Reduction kind, const int32_t* x, int64_t rows, int64_t stride, int64_t n, int32_t* results);
void ReduceRows(Reduction kind, const int64_t* x, int64_t rows, int64_t stride, int64_t n, int64_t* results);

// The reduction of a contiguous run.
double ReduceRun(Reduction kind, const double* x, int64_t n);
int32_t ReduceRun(Reduction kind, const int32_t* x, int64_t n);
int64_t ReduceRun(Reduction kind, const int64_t* x, int64_t n);

// results[k] = the reduction of the n > 0 elements from x[k * n] on, one after another, for k below `runs`.
inline constexpr int64_t kShortRun = 16;  // below this it is faster than run by run
void ReduceShortRuns(Reduction kind, const float* x, int64_t runs, int64_t n, float* results);
void ReduceShortRuns(Reduction kind, const double* x, int64_t runs, int64_t n, double* results);
void ReduceShortRuns(Reduction kind, const int32_t* x, int64_t runs, int64_t n, int32_t* results);
void ReduceShortRuns(Reduction kind, const int64_t* x, int64_t runs, int64_t n, int64_t* results);

}  // namespace mslua
