// Kernels of f64 convolutions, which oneDNN has not.
#pragma once

#include "core/kernels/bilinear.h"
#include "core/op/kernel.h"

namespace mslua {

// Computes what a Bilinear says, from operands 0 and 1 to the result.
using PlainConvolution = void (*)(const Convolution&, const double*, const double*, double*);

// conv2d or one of its gradients of f64, `bilinear_of` a call, as products of matrices over panels (panel_matmul.h): a
// matrix has a row for each number of a window and a column for each place of it, a few rows of places at a time. The
// bits do not depend on the number of threads. `plain` takes over where there is padding, and what meets it in these
// products is infinite or NaN.
FastKernel PanelConvolution(Bilinear (*bilinear_of)(const OpSpec&), PlainConvolution plain);

}  // namespace mslua
