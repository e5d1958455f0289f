#include "core/ops/define.h"

namespace mslua {

MSLUA_OPERATOR(log) {
  OpDef op = ElementwiseOp("log", {"x"}, "log(x)", {"dy / x"});
  op.Computes(Precision::kWide);
  op.Class("Log").Doc("Natural logarithm; NaN below 0.");
  op.AddSample({{{DType::kF32, {3, 5}}}, {}, 0.5, 3});
  return {op};
}

}  // namespace mslua
