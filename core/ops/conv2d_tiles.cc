// conv2d and its gradients on the processor's tiles; oneDNN's kernels where an operand has numbers that are not finite.
#include "core/kernels/amx/tile_bilinear.h"
#include "core/kernels/select/bilinear_guard.h"

namespace mslua {
namespace {

FastKernel Tiles(DType type, Bilinear (*bilinear_of)(const OpSpec&)) {
  const auto supports = [=](const OpSpec& spec) {
    return spec.outputs[0].dtype == type && spec.outputs[0].elements() > 0 && amx::SupportsTiles(bilinear_of(spec));
  };
  const auto make = [=](const OpSpec& spec) {
    return MakeGuarded(bilinear_of(spec), {Way::kTiles, Way::kOneDnn, Way::kOneDnnF32});
  };
  const bool f32 = type == DType::kF32;
  return {f32 ? "bf16x3" : "tiles", supports, make, /*bf16_tiles=*/f32};
}

}  // namespace

FastKernel TilesConvolution(DType type) { return Tiles(type, ConvolutionOf); }
FastKernel TilesConvolutionGradInput(DType type) { return Tiles(type, GradInputOf); }
FastKernel TilesConvolutionGradWeight(DType type) { return Tiles(type, GradWeightOf); }

}  // namespace mslua
