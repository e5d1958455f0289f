#include "core/ops/define.h"

namespace mslua {

MSLUA_OPERATOR(log1p) {
  OpDef op = ElementwiseOp("log1p", {"x"}, "log1p(x)", {"dy / (1 + x)"});
  op.Computes(Precision::kWide);
  op.Class("Log1p").Doc("The natural logarithm of 1 + x, exact for small x too; -inf at -1, NaN below.");
  op.AddSample({{{DType::kF32, {3, 5}}}, {}, -0.5, 3});
  return {op};
}

}  // namespace mslua
