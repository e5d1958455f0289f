#include "core/ops/define.h"

namespace mslua {

// Howard et al., Searching for MobileNetV3, 2019.
MSLUA_OPERATOR(hsigmoid) {
  OpDef op = ElementwiseOp("hsigmoid", {"x"}, "min(max(x + 3, 0), 6) / 6",
                           {"select(logical_and(greater(x, -3), less(x, 3)), dy / 6, 0)"});
  op.Class("HSigmoid").Doc("min(max(x + 3, 0), 6) / 6: a sigmoid of straight lines.");
  op.AddSample({{{DType::kF32, {3, 5}}}, {}, -2.5, 2.5});
  op.AddSample({{{DType::kF32, {3, 5}}}, {}, 3.5, 6});
  return {op};
}

}  // namespace mslua
