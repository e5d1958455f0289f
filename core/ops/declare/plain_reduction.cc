// Before the headers: what they define is inlined only where it is compiled in the same way.
#if !defined(__clang__)
#pragma GCC optimize("O3", "no-trapping-math", "no-math-errno")
#endif

#include "core/ops/declare/plain_reduction.h"

#include "core/base/target_clones.h"
#include "core/ops/declare/reduction_arithmetic.h"

namespace mslua {
namespace {

// In stretches of rows, for accuracy.
template <Reduction kKind, class T>
inline __attribute__((always_inline)) void Rows(const T* x, int64_t rows, int64_t stride, int64_t n, T* results) {
  constexpr int64_t kStretch = 256, kColumns = 256;
  for (int64_t c = 0; c < n; ++c) results[c] = Start<T>(kKind);
  T part[kColumns];
  for (int64_t c0 = 0; c0 < n; c0 += kColumns) {
    const int64_t columns = n - c0 < kColumns ? n - c0 : kColumns;
    for (int64_t r0 = 0; r0 < rows; r0 += kStretch) {
      const int64_t end = r0 + kStretch < rows ? r0 + kStretch : rows;
      for (int64_t c = 0; c < columns; ++c) part[c] = Start<T>(kKind);
      for (int64_t r = r0; r < end; ++r) {
        const T* row = x + r * stride + c0;
        for (int64_t c = 0; c < columns; ++c) part[c] = Combine<kKind>(part[c], row[c]);
      }
      for (int64_t c = 0; c < columns; ++c) results[c0 + c] = Combine<kKind>(results[c0 + c], part[c]);
    }
  }
}

// Every kLanes-th element apart, in stretches.
template <Reduction kKind, class T>
inline __attribute__((always_inline)) T Run(const T* x, int64_t n) {
  constexpr int64_t kLanes = 32, kStretch = 4096;
  T total = Start<T>(kKind);
  for (int64_t at = 0; at < n; at += kStretch) {
    const int64_t end = at + kStretch < n ? at + kStretch : n;
    T part[kLanes];
    for (int64_t k = 0; k < kLanes; ++k) part[k] = Start<T>(kKind);
    int64_t i = at;
    for (; i + kLanes <= end; i += kLanes) {
      for (int64_t k = 0; k < kLanes; ++k) part[k] = Combine<kKind>(part[k], x[i + k]);
    }
    for (int64_t k = 0; i < end; ++i, ++k) part[k] = Combine<kKind>(part[k], x[i]);
    for (int64_t half = kLanes / 2; half > 0; half /= 2) {
      for (int64_t k = 0; k < half; ++k) part[k] = Combine<kKind>(part[k], part[k + half]);
    }
    total = Combine<kKind>(total, part[0]);
  }
  return total;
}

template <Reduction kKind, class T>
inline __attribute__((always_inline)) void ShortRuns(const T* x, int64_t runs, int64_t n, T* results) {
  for (int64_t k = 0; k < runs; ++k) {
    T total = x[k * n];
    for (int64_t i = 1; i < n; ++i) total = Combine<kKind>(total, x[k * n + i]);
    results[k] = total;
  }
}

}  // namespace

#define MSLUA_BY_KIND(of, ...)                  \
  switch (kind) {                               \
    case Reduction::kSum:                       \
      return of<Reduction::kSum>(__VA_ARGS__);  \
    case Reduction::kProd:                      \
      return of<Reduction::kProd>(__VA_ARGS__); \
    case Reduction::kMax:                       \
      return of<Reduction::kMax>(__VA_ARGS__);  \
    case Reduction::kMin:                       \
      return of<Reduction::kMin>(__VA_ARGS__);  \
  }                                             \
  __builtin_unreachable();

#define MSLUA_SHORT_RUNS(T)                                                                             \
  MSLUA_VECTORS void ReduceShortRuns(Reduction kind, const T* x, int64_t runs, int64_t n, T* results) { \
    MSLUA_BY_KIND(ShortRuns, x, runs, n, results)                                                       \
  }
#define MSLUA_REDUCTIONS(T)                                                                                   \
  MSLUA_VECTORS void ReduceRows(Reduction kind, const T* x, int64_t rows, int64_t stride, int64_t n,          \
                                T* results){MSLUA_BY_KIND(Rows, x, rows, stride, n, results)} MSLUA_VECTORS T \
  ReduceRun(Reduction kind, const T* x, int64_t n){MSLUA_BY_KIND(Run, x, n)} MSLUA_SHORT_RUNS(T)

MSLUA_SHORT_RUNS(float)
MSLUA_REDUCTIONS(double)
MSLUA_REDUCTIONS(int32_t)
MSLUA_REDUCTIONS(int64_t)

}  // namespace mslua
