#include "core/ops/define.h"

namespace mslua {

MSLUA_OPERATOR(erfinv) {
  OpDef op = ElementwiseOp("erfinv", {"x"}, "erfinv(x)", {"dy * 0.886226925452758 * exp(y * y)"});
  op.Class("Erfinv").Doc("The inverse of erf: infinite at -1 and 1, NaN beyond them.");
  op.AddSample({{{DType::kF32, {3, 5}}}, {}, -0.9, 0.9});
  return {op};
}

}  // namespace mslua
