// How the values of a tensor are distributed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/base/shape.h"

namespace mslua {

// Finite values in bins of equal width from `low` to `high`; others are counted apart.
struct Histogram {
  int64_t count = 0;  // finite values
  int64_t nan = 0, infinite = 0;
  double low = 0, high = 0;  // the least and the greatest
  double sum = 0, squares = 0;
  std::vector<int64_t> counts;  // of each bin; empty where no value is finite

  // Where bin i begins, and bin i - 1 ends.
  double Edge(size_t i) const;
};

// 64 bins, of a dense tensor of any type; reads it twice.
Histogram MakeHistogram(const TensorView& tensor);

}  // namespace mslua
