#include "core/ops/define.h"

namespace mslua {

// x - floor(x) is exact, x + 0.5 is not.
MSLUA_OPERATOR(round) {
  OpDef op = ElementwiseOp("round", {"x"},
                           "floor(x) + select(logical_or(greater(x - floor(x), 0.5), "
                           "logical_and(equal(x - floor(x), 0.5), not_equal(floor(x) - 2 * floor(floor(x) / 2), 0))), "
                           "1, 0)");
  op.Class("Round").Doc("The whole number nearest to x; the even one where two are equally near.");
  op.AddSample({{{DType::kF32, {3, 5}}}, {}, -3, 3});
  return {op};
}

}  // namespace mslua
