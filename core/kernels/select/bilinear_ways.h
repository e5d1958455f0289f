// The ways in which products, convolutions and their gradients are computed.
#pragma once

#include <memory>

#include "core/base/status.h"
#include "core/kernels/bilinear.h"

namespace mslua {

// How a kernel computes.
enum class Way {
  kTiles,      // tile_bilinear.h
  kOneDnn,     // in the operands' type
  kOneDnnF32,  // in f32: 16-bit operands are converted before, the result after
};

// The kernel as it is: neither table nor check (bilinear_guard.h).
StatusOr<std::unique_ptr<Kernel>> MakeUnguarded(const Bilinear& b, Way way);

}  // namespace mslua
