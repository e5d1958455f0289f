#include "core/ops/define.h"

namespace mslua {

MSLUA_OPERATOR(sub) {
  OpDef op = ElementwiseOp("sub", {"a", "b"}, "a - b", {"dy", "-dy"});
  op.Class("Sub").Doc("Difference a - b of two tensors, element by element.").NumericTypes();
  op.AddSample({{{DType::kF32, {3, 5}}, {DType::kF32, {3, 5}}}});
  return {op};
}

}  // namespace mslua
