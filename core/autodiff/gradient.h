// Reverse-mode differentiation as a graph-to-graph transform. Knows no operator: each brings its own rule.
#pragma once

#include <vector>

#include "core/autodiff/custom_gradient.h"
#include "core/graph/builder.h"

namespace mslua {

// Appends to `g` the gradients of `y` with respect to each of `wrt`, seeded with `seed` (y's type; an invalid
// Value means ones, which asks for a scalar y). Values that y does not depend on get zeros. An error names
// an operator on the way that has no gradient, with its recipe line.
//
// Nodes of the backward pass carry the location of the forward node they come from, scope "grad(...)".
//
// With `mark_origin` they also carry the forward node's number as attribute `_origin`, for the partitioner, which gives
// them that node's factors; sums of the gradients of a value with several users carry `_sum`, which says that partial
// values may be added as they are. It drops both attributes.
//
// `flows` (may be null) gets, for each of `wrt`, whether any gradient reaches it: where none does its gradient is
// zeros.
//
// `custom` (may be null) has the parts of the graph whose gradients users give. Their nodes carry as _origin the last
// output of the part.
StatusOr<std::vector<Value>> Gradients(GraphBuilder& g, Value y, absl::Span<const Value> wrt, Value seed = Value(),
                                       bool mark_origin = false, std::vector<bool>* flows = nullptr,
                                       const CustomGradients* custom = nullptr);

}  // namespace mslua
