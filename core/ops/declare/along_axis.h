// What operators that go along one dimension, attribute `axis`, say of themselves.
#pragma once

#include <string>

#include "absl/strings/str_cat.h"
#include "core/op/op_def.h"

namespace mslua {

// The dimensions of x in the operator's rule, which no ranks share along `axis`: "d0 !d1 d2 ".
inline std::string DimsAlongAxis(const Attrs& attrs, const TensorType& x) {
  std::string dims;
  for (int64_t d = 0; d < x.rank(); ++d) absl::StrAppend(&dims, d == attrs.Int("axis") ? "!d" : "d", d, " ");
  return dims;
}

}  // namespace mslua
