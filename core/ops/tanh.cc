#include "core/ops/define.h"

namespace mslua {

MSLUA_OPERATOR(tanh) {
  // 1 - y * y loses all digits where y is near 1; 4 e / (1 + e)^2 with e = exp(-2|x|) does not.
  OpDef op = ElementwiseOp("tanh", {"x"}, "tanh(x)",
                           {"dy * 4 * exp(-2 * abs(x)) / ((1 + exp(-2 * abs(x))) * (1 + exp(-2 * abs(x))))"});
  op.Class("Tanh").Doc("Hyperbolic tangent.");
  op.AddSample({{{DType::kF32, {3, 4}}}, {}, -2, 2});
  return {op};
}

}  // namespace mslua
