#include "core/ops/define.h"

namespace mslua {

MSLUA_OPERATOR(sign) {
  OpDef op = ElementwiseOp("sign", {"x"}, "sign(x)");
  op.Class("Sign").Doc("-1, 0 or 1 with the sign of x; NaN stays NaN.").NumericTypes();
  op.AddSample({{{DType::kF32, {3, 5}}}, {}, -1, 1});
  return {op};
}

}  // namespace mslua
