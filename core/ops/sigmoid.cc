#include "core/ops/define.h"

namespace mslua {

MSLUA_OPERATOR(sigmoid) {
  OpDef op = ElementwiseOp("sigmoid", {"x"}, "sigmoid(x)", {"dy * y * (1 - y)"});
  op.Class("Sigmoid").Doc("1 / (1 + exp(-x)).");
  op.AddSample({{{DType::kF32, {3, 5}}}, {}, -3, 3});
  return {op};
}

}  // namespace mslua
