#include "core/ops/define.h"

namespace mslua {

MSLUA_OPERATOR(softplus) {
  OpDef op = ElementwiseOp("softplus", {"x"}, "max(x, 0) + log1p(exp(-abs(x)))", {"dy * sigmoid(x)"});
  op.Computes(Precision::kWide);
  op.Class("Softplus")
      .Doc(
          "log(1 + exp(x)), exact for every x: nothing overflows, and below 0 the result is as exact as exp(x). "
          "log(sigmoid(x)) is -softplus(-x).");
  op.AddSample({{{DType::kF32, {3, 5}}}, {}, -3, 3});
  return {op};
}

}  // namespace mslua
