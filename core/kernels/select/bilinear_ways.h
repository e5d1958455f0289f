// The ways in which products, convolutions and their gradients are computed.
#pragma once

#include <memory>

#include "absl/types/span.h"
#include "core/base/status.h"
#include "core/kernels/bilinear.h"

namespace mslua {

// How a kernel computes.
enum class Way {
  kTiles,      // tile_bilinear.h
  kOneDnn,     // in the operands' type
  kOneDnnF32,  // in f32: 16-bit operands are converted before, the result after
};

// The ways of oneDNN for operands of this type, the fastest first. Without instructions for bf16 it puts a product in
// bf16 together from others, which takes four times as long as in f32.
absl::Span<const Way> OneDnnWays(DType t);

// The kernel as it is: neither table nor check (bilinear_guard.h).
StatusOr<std::unique_ptr<Kernel>> MakeUnguarded(const Bilinear& b, Way way);

}  // namespace mslua
