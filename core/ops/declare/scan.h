// Running sums, products and recurrences along one dimension, on the CPU.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "core/base/parallel_for.h"
#include "core/base/round_up.h"
#include "core/kernels/simd/softmax.h"
#include "core/op/attrs.h"

namespace mslua {

inline constexpr int64_t kScanGrain = 16384;  // elements that are worth a thread

// What the running result of a row of T is kept in: a long row's sum in f32 would stop growing.
template <class T>
using ScanType = std::conditional_t<std::is_integral_v<T>, T, double>;

// Goes along `v.size` of [outer, size, inner] in each of the outer * inner rows, from the end with the attribute
// `reverse`. A row's state begins as `none` and becomes step(state, i, first) at element i of the dense tensor; `first`
// is true at the row's first element. y[i] is the state after element i, or with the attribute `exclusive` before it.
template <class T, class Step>
void Scan(const AxisView& v, const Attrs& attrs, T* y, ScanType<T> none, Step step) {
  using C = ScanType<T>;
  const bool exclusive = attrs.Bool("exclusive"), reverse = attrs.Bool("reverse");
  constexpr int64_t kColumns = 64;  // states that are kept side by side
  const int64_t shares = CeilDiv(v.inner, kColumns);
  const int64_t grain = std::max<int64_t>(1, kScanGrain / std::max<int64_t>(1, v.size * std::min(kColumns, v.inner)));
  ParallelFor(v.outer * shares, grain, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t column = t % shares * kColumns, n = std::min(kColumns, v.inner - column);
      C states[kColumns];
      std::fill_n(states, n, none);
      for (int64_t k = 0; k < v.size; ++k) {
        const int64_t at = (t / shares * v.size + (reverse ? v.size - 1 - k : k)) * v.inner + column;
        for (int64_t c = 0; c < n; ++c) {
          const C before = states[c];
          states[c] = step(before, at + c, k == 0);
          y[at + c] = static_cast<T>(exclusive ? before : states[c]);
        }
      }
    }
  });
}

}  // namespace mslua
