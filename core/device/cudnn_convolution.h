// Convolutions by cuDNN.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "core/device/cudnn_graph.h"

namespace mslua {

enum class ConvolutionKind { kForward, kGradInput, kGradWeight };

// Images x [n, c, h, w] and y [n, o, p, q], weights [o, c / group, kh, kw]. Channels last, x and y lie as [n, h, w, c]
// and the weights as [o, kh, kw, c / group]; else as written. f32, bf16 and f16; sums are float32.
struct ConvolutionShape {
  ConvolutionKind kind = ConvolutionKind::kForward;
  DType type = DType::kF32;
  bool channels_last = true;
  bool tf32 = false;  // f32 operands may be rounded to TF32
  std::array<int64_t, 4> x = {}, w = {}, y = {};
  std::array<int64_t, 2> stride = {1, 1}, dilation = {1, 1}, before = {}, after = {};
};

// A plan with the operands, in this order: x, w, y (kForward); y, w, x (kGradInput); x, y, w (kGradWeight).
// `choice`: as in CudnnGraph::Plan. Unimplemented where cuDNN has none.
StatusOr<std::unique_ptr<CudnnPlan>> PlanConvolution(const CudnnTarget& target, const ConvolutionShape& shape,
                                                     const std::string& choice = "");

}  // namespace mslua
