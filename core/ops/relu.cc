#include "core/ops/define.h"

namespace mslua {

MSLUA_OPERATOR(relu) {
  OpDef op = ElementwiseOp("relu", {"x"}, "max(x, 0)", {"select(le(y, 0), 0, dy)"});
  op.Class("ReLU")
      .Doc("max(x, 0), element by element; its gradient at 0 is 0. NaN stays NaN and lets the gradient through.")
      .NumericTypes();
  op.AddSample({{{DType::kF32, {3, 5}}}, {}, -1, 1});
  return {op};
}

}  // namespace mslua
