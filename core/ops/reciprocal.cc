#include "core/ops/define.h"

namespace mslua {

MSLUA_OPERATOR(reciprocal) {
  OpDef op = ElementwiseOp("reciprocal", {"x"}, "1 / x", {"-dy * y * y"});
  op.Class("Reciprocal").Doc("1 / x; infinite where x is 0.");
  op.AddSample({{{DType::kF32, {3, 5}}}, {}, 0.5, 2});
  return {op};
}

}  // namespace mslua
