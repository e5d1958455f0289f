#include "core/ops/define.h"

namespace mslua {

MSLUA_OPERATOR(tanh) {
  OpDef op = ElementwiseOp("tanh", {"x"}, "tanh(x)", {"dy * (1 - y * y)"});
  op.Class("Tanh").Doc("Hyperbolic tangent.");
  op.AddSample({{{DType::kF32, {3, 4}}}, {}, -2, 2});
  return {op};
}

}  // namespace mslua
