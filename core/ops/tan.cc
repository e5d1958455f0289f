#include "core/ops/define.h"

namespace mslua {

MSLUA_OPERATOR(tan) {
  OpDef op = ElementwiseOp("tan", {"x"}, "sin(x) / cos(x)", {"dy * (1 + y * y)"});
  op.Class("Tan").Doc("The tangent of x, in radians.");
  op.AddSample({{{DType::kF32, {3, 5}}}, {}, -1.2, 1.2});
  return {op};
}

}  // namespace mslua
