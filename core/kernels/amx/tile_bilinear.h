// The kernels on the processor's tiles (amx.h) of products and convolutions.
#pragma once

#include "core/kernels/bilinear.h"

namespace mslua::amx {

// Whether there is one: products of f32 in one batch, and convolutions of f32 and of bf16, whose sizes repay it.
bool SupportsTiles(const Bilinear& b);

// `plain` runs instead where an operand is f32 and has numbers that tiles cannot take (tile_kernel.h).
std::unique_ptr<Kernel> MakeTiles(const Bilinear& b, std::unique_ptr<Kernel> plain);

}  // namespace mslua::amx
