#include "core/ops/define.h"

namespace mslua {

MSLUA_OPERATOR(sin) {
  OpDef op = ElementwiseOp("sin", {"x"}, "sin(x)", {"dy * cos(x)"});
  op.Class("Sin").Doc("Sine of an angle in radians.");
  op.AddSample({{{DType::kF32, {3, 5}}}, {}, -9, 9});
  return {op};
}

}  // namespace mslua
