// Invariants of every operator, checked on its samples. Each check returns OK or says what is wrong; a check
// that does not apply to the operator returns OK.
#pragma once

#include "core/op/op_def.h"
#include "core/ops/testing/sample_run.h"

namespace mslua::testing {

// A graph of the one operator obeys Verify, and its text reads back as the same graph.
Status CheckText(const OpDef& op, const Sample& sample);

// Gradients of a random projection of the outputs against central differences in f64, along a random direction of each
// input; then the gradients of these gradients. Evaluated twice: the bits are equal.
Status CheckGradient(const OpDef& op, const Sample& sample);

// The factor rule executed: the call is sharded along each factor into 2 and 3 parts, these are run and joined by
// concatenation or by the rule's reduction, and must be the whole. Sharded along a factor marked `!` they must not.
Status CheckRule(const OpDef& op, const Sample& sample);

// Every fast kernel, in f32 and bf16, against the reference in f64: on the sample, and on larger tensors.
Status CheckFastKernels(const OpDef& op, const Sample& sample);

// Every element type that the operator allows runs; floats agree with f64.
Status CheckTypes(const OpDef& op, const Sample& sample);

// An output over the memory of an input, where the definition allows it, is the same.
Status CheckInPlace(const OpDef& op, const Sample& sample);

// The calls of an operator in an element type: the sample, and where it may be as many times as long; none where the
// operator does not allow the type or is a composite.
std::vector<Call> SampleCalls(const OpDef& op, const Sample& sample, DType dtype, absl::Span<const int64_t> times);
// The reference in f64 on the same values; and whether outputs are as near to it as their types allow, f64 ones within
// `f64_tolerance`.
StatusOr<std::vector<Memory>> Truth(const Call& call, const std::vector<Memory>& inputs);
Status ExpectTruth(const std::vector<Memory>& got, const std::vector<Memory>& truth, double f64_tolerance = 1e-9);

}  // namespace mslua::testing
