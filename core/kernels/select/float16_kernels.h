// Kernels of float16. A processor's libraries have few, so they are those of float32.
#pragma once

#include "core/op/op_def.h"

namespace mslua {

// An operator that has kernels for f32 gets them for f16, after its own: f16 operands become f32 before, f16 results
// are rounded once after. Nothing changes for operators without, and where an f16 operand is no f32 one to the
// operator.
void AddFloat16Kernels(OpDef* op);

}  // namespace mslua
