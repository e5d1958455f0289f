#include "core/ops/define.h"

namespace mslua {

MSLUA_OPERATOR(minimum) {
  OpDef op = ElementwiseOp("minimum", {"a", "b"}, "min(a, b)", {"select(gt(a, b), 0, dy)", "select(gt(a, b), dy, 0)"});
  op.Class("Minimum")
      .Doc(
          "The smaller of two tensors, element by element; NaN if either is. At ties and at NaN the gradient goes to "
          "a.")
      .NumericTypes();
  op.AddSample({{{DType::kF32, {3, 5}}, {DType::kF32, {3, 5}}}});
  return {op};
}

}  // namespace mslua
