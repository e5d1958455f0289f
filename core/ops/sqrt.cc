#include "core/ops/define.h"

namespace mslua {

MSLUA_OPERATOR(sqrt) {
  OpDef op = ElementwiseOp("sqrt", {"x"}, "sqrt(x)", {"0.5 * dy / y"});
  op.Class("Sqrt").Doc("Square root; NaN below 0.");
  op.AddSample({{{DType::kF32, {3, 5}}}, {}, 0.5, 3});
  return {op};
}

}  // namespace mslua
