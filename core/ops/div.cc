#include "core/ops/define.h"

namespace mslua {

MSLUA_OPERATOR(div) {
  OpDef op = ElementwiseOp("div", {"a", "b"}, "a / b", {"dy / b", "-dy * y / b"});
  op.Class("Div").Doc(
      "Quotient a / b of two tensors, element by element. Integers: cast to a float type first. "
      "`ops.div(a, b, \"floor\")` is floor_div, of integers too, and \"trunc\" truncate_div.");
  op.AddSample({{{DType::kF32, {3, 5}}, {DType::kF32, {3, 5}}}, {}, 0.5, 2});
  return {op};
}

}  // namespace mslua
