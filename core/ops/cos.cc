#include "core/ops/define.h"

namespace mslua {

MSLUA_OPERATOR(cos) {
  OpDef op = ElementwiseOp("cos", {"x"}, "cos(x)", {"-dy * sin(x)"});
  op.Class("Cos").Doc("Cosine of an angle in radians.");
  op.AddSample({{{DType::kF32, {3, 5}}}, {}, -9, 9});
  return {op};
}

}  // namespace mslua
