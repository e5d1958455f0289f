#include "core/device/cudnn_convolution.h"

#include <vector>

namespace mslua {
namespace {

constexpr int64_t kMostWorkspace = int64_t{1} << 30;

std::vector<int64_t> Vector(const std::array<int64_t, 2>& v) { return {v[0], v[1]}; }

}  // namespace

StatusOr<std::unique_ptr<CudnnPlan>> PlanConvolution(const CudnnTarget& target, const ConvolutionShape& shape,
                                                     const std::string& choice) {
  if (shape.type != DType::kF32 && shape.type != DType::kBF16 && shape.type != DType::kF16)
    return absl::UnimplementedError("convolutions of cuDNN are of f32, bf16 and f16");
  for (const auto& sizes : {shape.x, shape.w, shape.y}) {
    for (const int64_t size : sizes) {
      if (size == 0) return absl::UnimplementedError("cuDNN has no empty convolutions");
    }
  }
  CudnnGraph graph(target);
  const auto operand = [&](const std::array<int64_t, 4>& s) {
    const CudnnGraph::Sizes sizes(s.begin(), s.end());
    const CudnnGraph::Sizes last = {s[1] * s[2] * s[3], 1, s[3] * s[1], s[1]},
                            first = {s[1] * s[2] * s[3], s[2] * s[3], s[3], 1};
    return graph.Operand(shape.type, sizes, shape.channels_last ? last : first);
  };
  const CudnnWindow window = {Vector(shape.stride), Vector(shape.dilation), Vector(shape.before), Vector(shape.after)};
  switch (shape.kind) {
    case ConvolutionKind::kForward: {
      const int x = operand(shape.x), w = operand(shape.w), y = operand(shape.y);
      graph.Convolution(x, w, y, window);
      break;
    }
    case ConvolutionKind::kGradInput: {
      const int y = operand(shape.y), w = operand(shape.w), x = operand(shape.x);
      graph.ConvolutionGradInput(y, w, x, window);
      break;
    }
    case ConvolutionKind::kGradWeight: {
      const int x = operand(shape.x), y = operand(shape.y), w = operand(shape.w);
      graph.ConvolutionGradWeight(x, y, w, window);
      break;
    }
  }
  return graph.Plan(shape.tf32 ? CudnnRounding::kTf32 : CudnnRounding::kNone, kMostWorkspace, choice);
}

}  // namespace mslua
