// Runs scalar programs over tensors in plain C++: the reference for elementwise operators.
#pragma once

#include "core/base/shape.h"
#include "core/base/status.h"
#include "core/op/formula.h"

namespace mslua {

// The type in which a program over such tensors is computed: f64 if any operand is f64, f32 if any is
// another float, else i64 if any is i64, else i32. bool and u8 count as integers.
DType ElementwiseComputeType(absl::Span<const TensorView> inputs, absl::Span<const TensorView> outputs);

// Inputs broadcast to the outputs' shape as NumPy does (equal rank, size 1 repeats); outputs share one shape.
// A bool output stores value != 0.
Status EvaluateElementwise(const ScalarProgram& program, absl::Span<const TensorView> inputs,
                           absl::Span<const TensorView> outputs);

}  // namespace mslua
