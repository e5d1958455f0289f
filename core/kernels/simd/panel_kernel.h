// The kernel of a product of f32, bf16 or f64 matrices over panels (panel_matmul.h).
#pragma once

#include <memory>

#include "core/kernels/bilinear.h"
#include "core/op/kernel.h"

namespace mslua {

// Whether it takes less time than oneDNN 2.6.3, on a processor whose vectors have 256 bits. oneDNN does not copy an
// operand that few rows or columns of the result are made of; where its rows lie a multiple of 2 KiB apart, they then
// meet in the same lines of the first-level cache. (bench/results/training.md, "Products with vectors of 256 bits")
bool PanelsAreFaster(const MatrixProduct& p);

// `operands`, `result`: f32 or bf16, or both f64. Runs on the compute threads of the thread that makes it. The bits of
// the result do not depend on their number.
std::unique_ptr<Kernel> MakePanelKernel(const MatrixProduct& p, DType operands, DType result);

}  // namespace mslua
