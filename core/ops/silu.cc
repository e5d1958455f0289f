#include "core/ops/define.h"

namespace mslua {

MSLUA_OPERATOR(silu) {
  OpDef op = ElementwiseOp("silu", {"x"}, "x * sigmoid(x)", {"dy * sigmoid(x) * (1 + x * (1 - sigmoid(x)))"});
  op.Class("SiLU").Doc("x * sigmoid(x), also called swish.");
  op.AddSample({{{DType::kF32, {3, 5}}}, {}, -3, 3});
  return {op};
}

}  // namespace mslua
