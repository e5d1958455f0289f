// Operators of rows (core/op/elementwise.h) in which an operand names a column of each row, as labels name classes.
#pragma once

#include "core/op/elementwise.h"
#include "core/op/op_def.h"

namespace mslua {

// ComputesRows, where a name that is no column and not the one that `differs` compares with is an error, that of
// CheckLabels, on a device too.
void ComputesLabelledRows(OpDef& op);

}  // namespace mslua
