#include "core/kernels/simd/erf_table.h"

#include <cmath>

namespace mslua {

// Interpolation at Chebyshev's nodes, by Newton's divided differences; its error is below 1e-8.
ErfTable::ErfTable() {
  for (int piece = 0; piece < kPieces; ++piece) {
    double node[kDegree + 1], difference[kDegree + 1], p[kDegree + 1] = {};
    for (int i = 0; i <= kDegree; ++i) {
      node[i] = 0.5 + 0.5 * std::cos(M_PI * (2 * i + 1) / (2 * kDegree + 2));
      const double x = (piece + node[i]) * 4 / kPieces;
      difference[i] = std::erf(x) / x;
    }
    for (int step = 1; step <= kDegree; ++step) {
      for (int i = kDegree; i >= step; --i)
        difference[i] = (difference[i] - difference[i - 1]) / (node[i] - node[i - step]);
    }
    for (int i = kDegree; i >= 0; --i) {  // p = p (r - node) + difference
      for (int k = kDegree; k >= 1; --k) p[k] = p[k - 1] - node[i] * p[k];
      p[0] = difference[i] - node[i] * p[0];
    }
    for (int k = 0; k <= kDegree; ++k) power[k][piece] = static_cast<float>(p[k]);
  }
}

const ErfTable& GetErfTable() {
  static const ErfTable table;
  return table;
}

}  // namespace mslua
