#include "core/train/histogram.h"

#include <algorithm>
#include <cmath>

namespace mslua {
namespace {

constexpr size_t kBins = 64;

// Calls visit(double) for each element.
template <class Visit>
void ForEach(const TensorView& tensor, const Visit& visit) {
  const int64_t n = tensor.type.elements();
  if (tensor.type.dtype == DType::kF32) {
    const float* const values = tensor.as<float>();
    for (int64_t i = 0; i < n; ++i) visit(static_cast<double>(values[i]));
    return;
  }
  for (int64_t i = 0; i < n; ++i) visit(LoadAsDouble(tensor.type.dtype, tensor.data, i));
}

}  // namespace

double Histogram::Edge(size_t i) const {
  if (i == counts.size()) return high;
  // Of a difference that is not finite the parts are.
  const double share = static_cast<double>(i) / static_cast<double>(counts.size());
  return low * (1 - share) + high * share;
}

Histogram MakeHistogram(const TensorView& tensor) {
  Histogram h;
  ForEach(tensor, [&h](double v) {
    if (!std::isfinite(v)) {
      ++(std::isnan(v) ? h.nan : h.infinite);
      return;
    }
    h.low = h.count == 0 ? v : std::min(h.low, v);
    h.high = h.count == 0 ? v : std::max(h.high, v);
    ++h.count;
    h.sum += v;
    h.squares += v * v;
  });
  if (h.count == 0) return h;
  h.counts.assign(kBins, 0);
  // Halves: the difference of two finite numbers may be infinite.
  const double width = h.high / 2 - h.low / 2;
  ForEach(tensor, [&h, width](double v) {
    if (!std::isfinite(v)) return;
    const double share = width > 0 ? (v / 2 - h.low / 2) / width : 0;
    ++h.counts[std::min(static_cast<size_t>(share * kBins), kBins - 1)];
  });
  return h;
}

}  // namespace mslua
