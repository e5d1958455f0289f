// Numbers that come as doubles, from Lua or as attributes, as elements of tensors.
#pragma once

#include "absl/strings/string_view.h"
#include "core/base/dtype.h"
#include "core/base/status.h"

namespace mslua {

// An error unless `v`, truncated towards zero, is a number of `dtype`; float types and bool take any.
Status CheckHolds(DType dtype, double v);

// An error where the default type, which nobody asked for, is a float that rounds the whole number `v`, such as an id
// above 2^24 in float32. Numbers beyond 2^53, which may be rounded already, are let pass.
Status CheckUnrounded(DType dtype, double v);

// CheckHolds for the attribute `name` of an operator whose result has elements of `dtype`; integers take no fraction.
Status CheckNumber(absl::string_view name, DType dtype, double v);

}  // namespace mslua
