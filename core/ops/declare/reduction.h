// Reductions over any set of axes: the operator's common definition, its reference and its fast kernel.
#pragma once

#include "core/graph/builder.h"
#include "core/op/elementwise.h"
#include "core/op/op_def.h"

namespace mslua {

// reduce_sum, reduce_max, reduce_min, reduce_prod: input x, attributes `axis` (a list; empty: every axis) and
// `keep_dims`. The gradient is the caller's.
OpDef ReductionOp(std::string name, Reduction kind);

// A reduction of floats as a row program: row_sum, row_max or row_min.
StatusOr<RowForm> ReductionForm(const OpSpec& spec, const std::string& function);

// A value of the reduction's output type repeated over the input's shape: for gradients.
Value BroadcastReduced(GradContext& c, Value reduced);

// sum ^ power, of a sum that is not negative and a power below 1. Where the sum is 0 the gradient is 0 and not
// infinite: in a norm, and in a standard deviation, that infinity would be multiplied by 0.
Value RootOfSum(GraphBuilder& g, Value sum, double power);

// Whether axis `d` is reduced; the result's shape.
bool IsReduced(const Attrs& attrs, int64_t d);
Shape ReducedShape(const Attrs& attrs, const Shape& shape, bool keep_dims);

}  // namespace mslua
