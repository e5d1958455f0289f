#include "core/ops/define.h"

namespace mslua {

MSLUA_OPERATOR(neg) {
  OpDef op = ElementwiseOp("neg", {"x"}, "-x", {"-dy"});
  op.Class("Neg").Doc("Minus x.").NumericTypes();
  op.AddSample({{{DType::kF32, {3, 5}}}, {}, -1, 1});
  return {op};
}

}  // namespace mslua
