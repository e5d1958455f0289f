// conv2d and its gradients with oneDNN.
#include "core/kernels/onednn/onednn.h"
#include "core/kernels/select/bilinear_guard.h"

namespace mslua {
namespace {

FastKernel OneDnn(Bilinear (*bilinear_of)(const OpSpec&)) {
  const auto supports = [](const OpSpec& spec) {
    return onednn::Supports(spec.outputs[0].dtype) && spec.outputs[0].elements() > 0;
  };
  return {"onednn", supports, [bilinear_of](const OpSpec& spec) {
            const Bilinear b = bilinear_of(spec);
            return MakeGuarded(b, OneDnnWays(b.type));
          }};
}

}  // namespace

FastKernel OneDnnConvolution() { return OneDnn(ConvolutionOf); }
FastKernel OneDnnConvolutionGradInput() { return OneDnn(GradInputOf); }
FastKernel OneDnnConvolutionGradWeight() { return OneDnn(GradWeightOf); }

}  // namespace mslua
