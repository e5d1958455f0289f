// conv2d and its gradients on the processor's tiles; oneDNN's kernels where an operand has numbers that are not finite.
#include "absl/types/optional.h"
#include "core/base/parallel_for.h"
#include "core/ops/support/convolution.h"
#include "core/ops/support/tile_convolution.h"
#include "core/ops/support/tile_kernel.h"

namespace mslua {

// conv2d_onednn.cc
FastKernel OneDnnConvolution();
FastKernel OneDnnConvolutionGradInput();
FastKernel OneDnnConvolutionGradWeight();

namespace {

using amx::Direction;

using ConvolutionOf = Convolution (*)(const OpSpec&);

Convolution OfForward(const OpSpec& s) { return *ResolveConvolution(s.attrs, s.inputs[0], s.inputs[1]); }
Convolution OfGradInput(const OpSpec& s) { return *ResolveConvolution(s.attrs, s.outputs[0], s.inputs[1]); }
Convolution OfGradWeight(const OpSpec& s) { return *ResolveConvolution(s.attrs, s.inputs[0], s.outputs[0]); }

template <class T>
std::unique_ptr<Kernel> Make(const Convolution& c, absl::optional<Direction> direction, std::unique_ptr<Kernel> plain) {
  using Images = amx::TileConvolution<T>;
  using Weight = amx::TileWeightGradient<T>;
  const int64_t threads = ComputeThreads();
  if (direction) return std::make_unique<amx::TileKernel<T, Images>>(Images(c, *direction, threads), std::move(plain));
  return std::make_unique<amx::TileKernel<T, Weight>>(Weight(c, threads), std::move(plain));
}

// `direction`: none for the weight's gradient.
FastKernel Tiles(DType type, ConvolutionOf convolution_of, absl::optional<Direction> direction, FastKernel plain) {
  const auto supports = [=](const OpSpec& spec) {
    return spec.outputs[0].dtype == type && spec.outputs[0].elements() > 0 && amx::SupportsTiles(convolution_of(spec));
  };
  const auto make = [=](const OpSpec& spec) -> StatusOr<std::unique_ptr<Kernel>> {
    ASSIGN_OR_RETURN(std::unique_ptr<Kernel> of_onednn, plain.make(spec));
    const Convolution c = convolution_of(spec);
    return type == DType::kF32 ? Make<float>(c, direction, std::move(of_onednn))
                               : Make<BF16>(c, direction, std::move(of_onednn));
  };
  const bool f32 = type == DType::kF32;
  return {f32 ? "bf16x3" : "tiles", supports, make, /*bf16_tiles=*/f32};
}

}  // namespace

FastKernel TilesConvolution(DType type) { return Tiles(type, OfForward, Direction::kForward, OneDnnConvolution()); }
FastKernel TilesConvolutionGradInput(DType type) {
  return Tiles(type, OfGradInput, Direction::kGradInput, OneDnnConvolutionGradInput());
}
FastKernel TilesConvolutionGradWeight(DType type) {
  return Tiles(type, OfGradWeight, absl::nullopt, OneDnnConvolutionGradWeight());
}

}  // namespace mslua
