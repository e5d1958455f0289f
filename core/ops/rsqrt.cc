#include "core/ops/define.h"

namespace mslua {

MSLUA_OPERATOR(rsqrt) {
  OpDef op = ElementwiseOp("rsqrt", {"x"}, "rsqrt(x)", {"-0.5 * dy * y * y * y"});
  op.Class("Rsqrt").Doc("1 / sqrt(x).");
  op.AddSample({{{DType::kF32, {3, 5}}}, {}, 0.5, 3});
  return {op};
}

}  // namespace mslua
