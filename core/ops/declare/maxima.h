// The reference kernels of maximum pooling, for windows of any kind: a kind P has the images x and y, and Covered(a,
// i), the input positions [begin, end) that output position i covers along axis a (0: rows, 1: columns), never none.
#pragma once

#include <cmath>
#include <vector>

#include "core/base/parallel_for.h"
#include "core/kernels/dispatch.h"
#include "core/op/kernel.h"

namespace mslua {

// Calls f(index of the first maximum in x, index in y) for every result.
template <class P, class T, class F>
void ForEachMaximum(const P& p, const T* x, F f) {
  const auto xs = p.x.strides(), ys = p.y.strides();
  ParallelFor(p.x.n * p.x.c, 1, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t from = t / p.x.c * xs[0] + t % p.x.c * xs[1], to = t / p.x.c * ys[0] + t % p.x.c * ys[1];
      for (int64_t i = 0; i < p.y.h; ++i) {
        const auto rows = p.Covered(0, i);
        for (int64_t j = 0; j < p.y.w; ++j) {
          const auto columns = p.Covered(1, j);
          int64_t best = from + rows.begin * xs[2] + columns.begin * xs[3];
          for (int64_t r = rows.begin; r < rows.end; ++r) {
            for (int64_t c = columns.begin; c < columns.end; ++c) {
              const int64_t at = from + r * xs[2] + c * xs[3];
              if (x[at] > x[best] ||
                  (std::isnan(static_cast<double>(x[at])) && !std::isnan(static_cast<double>(x[best]))))
                best = at;
            }
          }
          f(best, to + i * ys[2] + j * ys[3]);
        }
      }
    }
  });
}

// y of x.
template <class P>
void ReferenceMaxima(const P& p, const OpCall& call) {
  DispatchFloat(call.outputs[0].type.dtype, [&](auto zero) {
    using T = decltype(zero);
    const T* x = call.inputs[0].as<T>();
    T* y = call.outputs[0].as<T>();
    ForEachMaximum(p, x, [&](int64_t from, int64_t to) { y[to] = x[from]; });
  });
}

// dx of x and dy: each element of dy goes to the first maximum of its window.
template <class P>
void ReferenceMaximaGrad(const P& p, const OpCall& call) {
  DispatchFloat(call.outputs[0].type.dtype, [&](auto zero) {
    using T = decltype(zero);
    using C = ComputeType<T>;
    const T* dy = call.inputs[1].as<T>();
    T* dx = call.outputs[0].as<T>();
    std::vector<C> sum(p.x.elements(), C{0});
    ForEachMaximum(p, call.inputs[0].as<T>(), [&](int64_t from, int64_t to) { sum[from] += static_cast<C>(dy[to]); });
    for (int64_t i = 0; i < p.x.elements(); ++i) dx[i] = static_cast<T>(sum[i]);
  });
}

}  // namespace mslua
