#include "core/ops/define.h"

namespace mslua {

// Howard et al., Searching for MobileNetV3, 2019.
MSLUA_OPERATOR(hswish) {
  OpDef op =
      ElementwiseOp("hswish", {"x"}, "x * min(max(x + 3, 0), 6) / 6",
                    {"dy * (min(max(x + 3, 0), 6) / 6 + select(logical_and(greater(x, -3), less(x, 3)), x / 6, 0))"});
  op.Class("HSwish").Doc("x * hsigmoid(x).");
  op.AddSample({{{DType::kF32, {3, 5}}}, {}, -2.5, 2.5});
  op.AddSample({{{DType::kF32, {3, 5}}}, {}, 3.5, 6});
  return {op};
}

}  // namespace mslua
