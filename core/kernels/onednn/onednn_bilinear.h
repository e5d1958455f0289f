// oneDNN's kernels of products and convolutions.
#pragma once

#include "core/kernels/bilinear.h"

namespace mslua::onednn {

// Computes in `arithmetic`, f32 or the operands' type; operands of another type are converted in scratch memory. Runs
// on the compute threads of the thread that makes it. An error where oneDNN has no kernel for the sizes.
StatusOr<std::unique_ptr<Kernel>> MakeBilinear(const Bilinear& b, DType arithmetic);

}  // namespace mslua::onednn
