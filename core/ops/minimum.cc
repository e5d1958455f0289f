#include "core/ops/define.h"

namespace mslua {

MSLUA_OPERATOR(minimum) {
  OpDef op = ElementwiseOp("minimum", {"a", "b"}, "min(a, b)", {"select(le(a, b), dy, 0)", "select(le(a, b), 0, dy)"});
  op.Class("Minimum")
      .Doc("The smaller of two tensors, element by element; NaN if either is. At ties the gradient goes to a.")
      .NumericTypes();
  op.AddSample({{{DType::kF32, {3, 5}}, {DType::kF32, {3, 5}}}});
  return {op};
}

}  // namespace mslua
