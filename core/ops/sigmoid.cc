#include "core/ops/define.h"

namespace mslua {

MSLUA_OPERATOR(sigmoid) {
  // y * (1 - y) loses all digits where y is near 1. From e = exp(-|x|) both factors are exact.
  OpDef op =
      ElementwiseOp("sigmoid", {"x"}, "sigmoid(x)", {"dy * exp(-abs(x)) / ((1 + exp(-abs(x))) * (1 + exp(-abs(x))))"});
  op.Class("Sigmoid").Doc("1 / (1 + exp(-x)).");
  op.AddSample({{{DType::kF32, {3, 5}}}, {}, -3, 3});
  return {op};
}

}  // namespace mslua
