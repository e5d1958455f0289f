// Lua's numbers as elements of tensors.
#pragma once

#include "core/base/dtype.h"
#include "core/base/status.h"

namespace mslua {

// An error unless `v`, truncated towards zero, is a number of `dtype`; float types and bool take any.
Status CheckHolds(DType dtype, double v);

}  // namespace mslua
