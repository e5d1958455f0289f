#include "core/ops/define.h"

namespace mslua {

// Misra, Mish: A Self Regularized Non-Monotonic Activation Function, 2019. s is softplus(x), computed without overflow.
// At 0, max(x, 0) and max(x, -x) both have the slope of x > 0, so that softplus has its own there: that of abs(x) is 0.
MSLUA_OPERATOR(mish) {
  OpDef op = ElementwiseOp("mish", {"x"}, "x * tanh(max(x, 0) + log1p(exp(-abs(x))))",
                           {"dy * (tanh(max(x, 0) + log1p(exp(-max(x, -x)))) + x * sigmoid(x) * "
                            "(1 - tanh(max(x, 0) + log1p(exp(-max(x, -x)))) * "
                            "tanh(max(x, 0) + log1p(exp(-max(x, -x))))))"});
  op.Class("Mish").Doc("x * tanh(softplus(x)).");
  op.AddSample({{{DType::kF32, {3, 5}}}, {}, -3, 3});
  return {op};
}

}  // namespace mslua
