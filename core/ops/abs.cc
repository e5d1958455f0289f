#include "core/ops/define.h"

namespace mslua {

MSLUA_OPERATOR(abs) {
  OpDef op = ElementwiseOp("abs", {"x"}, "abs(x)", {"dy * sign(x)"});
  op.Class("Abs").Doc("Absolute value; its gradient at 0 is 0.").NumericTypes();
  op.AddSample({{{DType::kF32, {3, 5}}}, {}, -1, 1});
  return {op};
}

}  // namespace mslua
