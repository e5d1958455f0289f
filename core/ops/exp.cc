#include "core/ops/define.h"

namespace mslua {

MSLUA_OPERATOR(exp) {
  OpDef op = ElementwiseOp("exp", {"x"}, "exp(x)", {"dy * y"});
  op.Computes(Precision::kWide);
  op.Class("Exp").Doc("e to the power x.");
  op.AddSample({{{DType::kF32, {3, 5}}}, {}, -2, 2});
  return {op};
}

}  // namespace mslua
