#include "core/ops/define.h"

namespace mslua {

MSLUA_OPERATOR(erf) {
  OpDef op = ElementwiseOp("erf", {"x"}, "erf(x)", {"dy * 1.1283791670955126 * exp(-x * x)"});
  op.Class("Erf").Doc("Error function.");
  op.AddSample({{{DType::kF32, {3, 5}}}, {}, -2, 2});
  return {op};
}

}  // namespace mslua
