// Average pooling of every kind (windows, adaptive, global) and its gradient are one linear map, separable along
// height and width: result (i, j) is the weighted sum over a rectangle of the source.
#pragma once

#include <vector>

#include "core/kernels/window.h"

namespace mslua {

// One axis of the map: result i sums source positions [begin[i], end[i]), scaled as the result's and the source's
// position say.
struct AverageAxis {
  std::vector<int64_t> begin, end;
  std::vector<double> result_scale, source_scale;

  int64_t results() const { return static_cast<int64_t>(begin.size()); }
  int64_t sources() const { return static_cast<int64_t>(source_scale.size()); }
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

// Plain C++, any float type.
void ReferenceAveragePool(const AveragePooling& p, DType t, const void* source, void* result);

// f32 and bf16, vectors over channels: for images with channels last. `resolve` gives the map of a call.
FastKernel HighwayAveragePool(std::function<StatusOr<AveragePooling>(const OpSpec&)> resolve);

}  // namespace mslua
