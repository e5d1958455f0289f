// conv2d and its gradients on the processor's tiles; oneDNN's kernels where an operand has numbers that are not finite.
#include <algorithm>

#include "core/base/parallel_for.h"
#include "core/op/kernel.h"
#include "core/ops/support/convolution.h"
#include "core/ops/support/split_convolution.h"

namespace mslua {

// conv2d_onednn.cc
FastKernel OneDnnConvolution();
FastKernel OneDnnConvolutionGradInput();
FastKernel OneDnnConvolutionGradWeight();

namespace {

using Direction = amx::SplitConvolution::Direction;

// Inputs: images and weight.
class ImagesKernel : public Kernel {
 public:
  ImagesKernel(const Convolution& c, Direction direction, std::unique_ptr<Kernel> plain)
      : split_(c, direction, ComputeThreads()), plain_(std::move(plain)) {}

  int64_t scratch_bytes() const override { return std::max(split_.scratch_bytes(), plain_->scratch_bytes()); }

  Status Run(const Buffers& b) override {
    const bool done = split_.Run(static_cast<const float*>(b.inputs[0]), static_cast<const float*>(b.inputs[1]),
                                 static_cast<float*>(b.outputs[0]), b.scratch);
    return done ? absl::OkStatus() : plain_->Run(b);
  }

 private:
  const amx::SplitConvolution split_;
  const std::unique_ptr<Kernel> plain_;
};

class WeightKernel : public Kernel {
 public:
  WeightKernel(const Convolution& c, std::unique_ptr<Kernel> plain)
      : split_(c), plain_(std::move(plain)), threads_(ComputeThreads()) {}

  int64_t scratch_bytes() const override { return std::max(split_.scratch_bytes(), plain_->scratch_bytes()); }

  Status Run(const Buffers& b) override {
    const bool done = split_.Run(static_cast<const float*>(b.inputs[0]), static_cast<const float*>(b.inputs[1]),
                                 static_cast<float*>(b.outputs[0]), threads_, b.scratch);
    return done ? absl::OkStatus() : plain_->Run(b);
  }

 private:
  const amx::SplitWeightGradient split_;
  const std::unique_ptr<Kernel> plain_;
  const int64_t threads_;
};

// Of the convolution or of its gradient: which of inputs and outputs are its images and its weight.
FastKernel Tiles(std::function<Convolution(const OpSpec&)> convolution_of,
                 std::function<std::unique_ptr<Kernel>(const Convolution&, std::unique_ptr<Kernel>)> wrap,
                 FastKernel plain) {
  const auto supports = [convolution_of](const OpSpec& spec) {
    return spec.outputs[0].dtype == DType::kF32 && spec.outputs[0].elements() > 0 &&
           amx::SupportsSplit(convolution_of(spec));
  };
  const auto make = [convolution_of, wrap, plain](const OpSpec& spec) -> StatusOr<std::unique_ptr<Kernel>> {
    ASSIGN_OR_RETURN(std::unique_ptr<Kernel> of_onednn, plain.make(spec));
    return wrap(convolution_of(spec), std::move(of_onednn));
  };
  return {"bf16x3", supports, make, /*bf16_tiles=*/true};
}

auto Images(Direction direction) {
  return [direction](const Convolution& c, std::unique_ptr<Kernel> plain) -> std::unique_ptr<Kernel> {
    return std::make_unique<ImagesKernel>(c, direction, std::move(plain));
  };
}

}  // namespace

FastKernel TilesConvolution() {
  return Tiles([](const OpSpec& s) { return *ResolveConvolution(s.attrs, s.inputs[0], s.inputs[1]); },
               Images(Direction::kForward), OneDnnConvolution());
}

FastKernel TilesConvolutionGradInput() {
  return Tiles([](const OpSpec& s) { return *ResolveConvolution(s.attrs, s.outputs[0], s.inputs[1]); },
               Images(Direction::kGradInput), OneDnnConvolutionGradInput());
}

FastKernel TilesConvolutionGradWeight() {
  return Tiles([](const OpSpec& s) { return *ResolveConvolution(s.attrs, s.inputs[0], s.outputs[0]); },
               [](const Convolution& c, std::unique_ptr<Kernel> plain) -> std::unique_ptr<Kernel> {
                 return std::make_unique<WeightKernel>(c, std::move(plain));
               },
               OneDnnConvolutionGradWeight());
}

}  // namespace mslua
