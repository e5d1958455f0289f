#include "core/ops/define.h"

namespace mslua {

MSLUA_OPERATOR(add) {
  OpDef op = ElementwiseOp("add", {"a", "b"}, "a + b", {"dy", "dy"});
  op.Class("Add").Doc("Sum of two tensors, element by element.").NumericTypes();
  op.AddSample({{{DType::kF32, {3, 4}}, {DType::kF32, {3, 4}}}});
  return {op};
}

}  // namespace mslua
