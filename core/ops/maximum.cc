#include "core/ops/define.h"

namespace mslua {

MSLUA_OPERATOR(maximum) {
  OpDef op = ElementwiseOp("maximum", {"a", "b"}, "max(a, b)", {"select(ge(a, b), dy, 0)", "select(ge(a, b), 0, dy)"});
  op.Class("Maximum")
      .Doc("The larger of two tensors, element by element; NaN if either is. At ties the gradient goes to a.")
      .NumericTypes();
  op.AddSample({{{DType::kF32, {3, 5}}, {DType::kF32, {3, 5}}}});
  return {op};
}

}  // namespace mslua
