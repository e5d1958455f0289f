// The sizes of a 2-d convolution, from the operator's attributes and types.
#pragma once

#include "core/base/status.h"
#include "core/kernels/window.h"
#include "core/op/attrs.h"

namespace mslua {

struct Convolution {
  Image x, y;
  int64_t group = 1;
  Window window;

  // Weights are [y.c, x.c / group, kernel height, kernel width] whatever the images' format is.
  int64_t in_per_group() const { return x.c / group; }
  int64_t out_per_group() const { return y.c / group; }
  Shape weight_shape() const { return {y.c, in_per_group(), window.size[0], window.size[1]}; }
};

// Of conv2d(x, w) and of its gradients; an error where x and w do not go together.
StatusOr<Convolution> ResolveConvolution(const Attrs& attrs, const TensorType& x, const TensorType& w);

}  // namespace mslua
