#include "core/ops/define.h"

namespace mslua {

MSLUA_OPERATOR(expm1) {
  OpDef op = ElementwiseOp("expm1", {"x"}, "expm1(x)", {"dy * exp(x)"});
  op.Computes(Precision::kWide);
  op.Class("Expm1").Doc("e to the power x, minus 1; exact for small x too.");
  op.AddSample({{{DType::kF32, {3, 5}}}, {}, -2, 2});
  return {op};
}

}  // namespace mslua
