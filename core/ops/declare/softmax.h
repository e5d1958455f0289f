// What softmax and its logarithm share: along an axis.
#pragma once

#include <string>

#include "core/op/elementwise.h"
#include "core/op/op_def.h"

namespace mslua {

// Declares the operand, the attribute `axis`, the rule, the kernels and the samples.
void DeclareSoftmax(OpDef& op, bool log);
// The formula whose result is `y`, of an element x, the row's maximum m, e = exp(x - m) and the row's sum s of it.
StatusOr<RowForm> SoftmaxForm(const OpSpec& spec, const std::string& y);

}  // namespace mslua
