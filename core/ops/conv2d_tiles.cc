// conv2d and its gradients on the processor's tiles; oneDNN's kernels where an operand has numbers that are not finite.
#include <algorithm>

#include "absl/types/optional.h"
#include "core/base/parallel_for.h"
#include "core/op/kernel.h"
#include "core/ops/support/convolution.h"
#include "core/ops/support/tile_convolution.h"

namespace mslua {

// conv2d_onednn.cc
FastKernel OneDnnConvolution();
FastKernel OneDnnConvolutionGradInput();
FastKernel OneDnnConvolutionGradWeight();

namespace {

using amx::Direction;

// Inputs: images and weight.
template <class T>
class ImagesKernel : public Kernel {
 public:
  ImagesKernel(const Convolution& c, Direction direction, std::unique_ptr<Kernel> plain)
      : tiles_(c, direction, ComputeThreads()), plain_(std::move(plain)) {}

  int64_t scratch_bytes() const override { return std::max(tiles_.scratch_bytes(), plain_->scratch_bytes()); }

  Status Run(const Buffers& b) override {
    const bool done = tiles_.Run(static_cast<const T*>(b.inputs[0]), static_cast<const T*>(b.inputs[1]),
                                 static_cast<T*>(b.outputs[0]), b.scratch);
    return done ? absl::OkStatus() : plain_->Run(b);
  }

 private:
  const amx::TileConvolution<T> tiles_;
  const std::unique_ptr<Kernel> plain_;
};

template <class T>
class WeightKernel : public Kernel {
 public:
  WeightKernel(const Convolution& c, std::unique_ptr<Kernel> plain)
      : tiles_(c), plain_(std::move(plain)), threads_(ComputeThreads()) {}

  int64_t scratch_bytes() const override { return std::max(tiles_.scratch_bytes(), plain_->scratch_bytes()); }

  Status Run(const Buffers& b) override {
    const bool done = tiles_.Run(static_cast<const T*>(b.inputs[0]), static_cast<const T*>(b.inputs[1]),
                                 static_cast<T*>(b.outputs[0]), threads_, b.scratch);
    return done ? absl::OkStatus() : plain_->Run(b);
  }

 private:
  const amx::TileWeightGradient<T> tiles_;
  const std::unique_ptr<Kernel> plain_;
  const int64_t threads_;
};

using ConvolutionOf = Convolution (*)(const OpSpec&);

Convolution OfForward(const OpSpec& s) { return *ResolveConvolution(s.attrs, s.inputs[0], s.inputs[1]); }
Convolution OfGradInput(const OpSpec& s) { return *ResolveConvolution(s.attrs, s.outputs[0], s.inputs[1]); }
Convolution OfGradWeight(const OpSpec& s) { return *ResolveConvolution(s.attrs, s.inputs[0], s.outputs[0]); }

template <class T>
std::unique_ptr<Kernel> Make(const Convolution& c, absl::optional<Direction> direction, std::unique_ptr<Kernel> plain) {
  if (direction) return std::make_unique<ImagesKernel<T>>(c, *direction, std::move(plain));
  return std::make_unique<WeightKernel<T>>(c, std::move(plain));
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
