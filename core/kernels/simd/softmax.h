// Softmax and its kin over rows, over Highway.
#pragma once

#include "core/op/op_def.h"

namespace mslua {

// A tensor seen as [outer, size, inner] around one axis.
struct AxisView {
  int64_t outer = 1, size = 1, inner = 1;
  static AxisView Of(const Shape& shape, int64_t axis);
};

// f32 and bf16, along the attribute `axis`.
FastKernel HighwaySoftmax(bool log);
// Elements side by side that a kernel works on together, where the axis is not the last one.
inline constexpr int64_t kSoftmaxColumns = 64;

// high + low is a sum exactly; `high` is the sum rounded.
template <class T>
struct TwoParts {
  T high, low;
};
// Knuth's TwoSum, for operands in any order.
template <class T>
TwoParts<T> ExactSum(T a, T b) {
  const T high = a + b, from_b = high - a;
  return {high, (a - (high - from_b)) + (b - from_b)};
}

// logits [.., classes] and labels [..] give the loss, and the logarithm of the sum of exponentials in two parts, all
// [..] f32.
FastKernel HighwaySparseCrossEntropy();
// logits, labels, lse, lse_low, dloss give the logits' gradient.
FastKernel HighwaySparseCrossEntropyGrad();

// OK, or which record has a label that is neither in [0, classes) nor `ignore`.
Status CheckLabels(DType type, const void* labels, int64_t records, int64_t classes, int64_t ignore);
// Its error for the label of record i, from 0, of so many; the message counts records from 1.
Status WrongLabel(int64_t i, int64_t records, int64_t label, int64_t classes);

}  // namespace mslua
