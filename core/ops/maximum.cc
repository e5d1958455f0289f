#include "core/ops/define.h"

namespace mslua {

MSLUA_OPERATOR(maximum) {
  OpDef op = ElementwiseOp("maximum", {"a", "b"}, "max(a, b)", {"select(lt(a, b), 0, dy)", "select(lt(a, b), dy, 0)"});
  op.Class("Maximum")
      .Doc(
          "The larger of two tensors, element by element; NaN if either is. At ties and at NaN the gradient goes to "
          "a.")
      .NumericTypes();
  op.AddSample({{{DType::kF32, {3, 5}}, {DType::kF32, {3, 5}}}});
  return {op};
}

}  // namespace mslua
