#include "core/ops/define.h"

namespace mslua {

MSLUA_OPERATOR(relu) {
  OpDef op = ElementwiseOp("relu", {"x"}, "max(x, 0)", {"select(gt(y, 0), dy, 0)"});
  op.Class("ReLU").Doc("max(x, 0), element by element; its gradient at 0 is 0.").NumericTypes();
  op.AddSample({{{DType::kF32, {3, 5}}}, {}, -1, 1});
  return {op};
}

}  // namespace mslua
