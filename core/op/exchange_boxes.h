// The boxes that an exchange moves between ranks, as its attribute `messages` has them (core/ops/ranks/exchange.cc).
#pragma once

#include <vector>

#include "core/base/shape.h"
#include "core/op/op_def.h"

namespace mslua {

struct ExchangeBox {
  int64_t from, to;             // ranks
  Shape source, target, sizes;  // where it begins in the tensor of `from`, and in the result of `to`
};
// `messages` has 2 + 3 * rank numbers a box.
std::vector<ExchangeBox> ExchangeBoxes(const Attrs& attrs);

// Whether a box of these sizes at `at` lies in a tensor of the shape `whole`. None of the numbers is negative.
bool LiesIn(const Shape& at, const Shape& sizes, const Shape& whole);

}  // namespace mslua
