#include "core/ops/define.h"

namespace mslua {

MSLUA_OPERATOR(mul) {
  OpDef op = ElementwiseOp("mul", {"a", "b"}, "a * b", {"dy * b", "dy * a"});
  op.Class("Mul").Doc("Product of two tensors, element by element.").NumericTypes();
  op.AddSample({{{DType::kF32, {3, 5}}, {DType::kF32, {3, 5}}}});
  return {op};
}

}  // namespace mslua
