// Average pooling of every kind (windows, adaptive, global), resizing, and their gradients are one linear map,
// separable along height and width: result (i, j) is the weighted sum over a rectangle of the source.
#pragma once

#include <cmath>
#include <vector>

#include "core/kernels/window.h"

namespace mslua {

// One axis of the map: result i sums source positions [begin[i], end[i]), scaled as the result's and the source's
// position say.
struct AverageAxis {
  std::vector<int64_t> begin, end;
  std::vector<double> result_scale, source_scale;
  // Of linear interpolation, else empty: where results and sources lie. A term also counts by 1 less their distance.
  std::vector<double> result_at, source_at;

  int64_t results() const { return static_cast<int64_t>(begin.size()); }
  int64_t sources() const { return static_cast<int64_t>(source_scale.size()); }
  double Nearness(int64_t i, int64_t s) const {
    return result_at.empty() ? 1 : 1 - std::abs(result_at[i] - source_at[s]);
  }
  // What source `s` counts in result `i`, but for the result's scale.
  double Weight(int64_t i, int64_t s) const { return source_scale[s] * Nearness(i, s); }
  // Whether two results are the same, whatever the sources are.
  bool SameResult(int64_t i, int64_t k) const {
    return result_at.empty() && begin[i] == begin[k] && end[i] == end[k] && result_scale[i] == result_scale[k];
  }
  // The map as a matrix [results, sources], or its transpose.
  std::vector<float> Matrix(bool transposed) const;
  // The gradient of the map.
  AverageAxis Transposed() const;
};

struct AveragePooling {
  int64_t n = 0, c = 0;
  bool channels_last = false;
  AverageAxis rows, columns;

  Image source() const { return {n, c, rows.sources(), columns.sources(), channels_last}; }
  Image result() const { return {n, c, rows.results(), columns.results(), channels_last}; }
  AveragePooling Transposed() const { return {n, c, channels_last, rows.Transposed(), columns.Transposed()}; }
};

// An error for axes of more elements than an AverageAxis, which has tables of them, is made for.
Status CheckAverages(absl::Span<const int64_t> axes);
// Windows along an axis of `size` elements; padding counts as zeros when `count_padding`, else it does not count.
AverageAxis WindowAverages(const Window& window, int axis, int64_t size, bool count_padding);
// `results` windows that cover `size` elements as evenly as can be: from floor(i * size / results) to
// ceil((i + 1) * size / results), as PyTorch's adaptive pooling.
AverageAxis AdaptiveAverages(int64_t size, int64_t results);

// Where the results of resizing lie among the sources.
struct ResizeRule {
  bool linear;              // between two sources; else at one of them
  bool align_corners;       // the first and the last result lie on the first and the last source
  bool half_pixel_centers;  // positions are those of the pixels' centres
};
// An axis of `size` elements resized to `results`; at least one of each. As ResizeBilinearV2 and
// ResizeNearestNeighborV2 of MindSpore.
AverageAxis ResizeAxis(int64_t size, int64_t results, const ResizeRule& rule);

// Plain C++, any type; a map of numbers that are not floats should have the weights 1 alone.
void ReferenceAveragePool(const AveragePooling& p, DType t, const void* source, void* result);

// The map of a call on images of x's type.
using AverageMap = std::function<StatusOr<AveragePooling>(const Attrs& attrs, const TensorType& x)>;

// f32 and bf16, vectors over channels, or over columns where channels are not last.
FastKernel HighwayAveragePool(AverageMap map);

}  // namespace mslua
