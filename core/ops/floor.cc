#include "core/ops/define.h"

namespace mslua {

MSLUA_OPERATOR(floor) {
  OpDef op = ElementwiseOp("floor", {"x"}, "floor(x)");
  op.Class("Floor").Doc("The largest whole number not above x.");
  op.AddSample({{{DType::kF32, {3, 5}}}, {}, -3, 3});
  return {op};
}

}  // namespace mslua
