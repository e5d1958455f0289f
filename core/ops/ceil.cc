#include "core/ops/define.h"

namespace mslua {

MSLUA_OPERATOR(ceil) {
  OpDef op = ElementwiseOp("ceil", {"x"}, "-floor(-x)");
  op.Class("Ceil").Doc("The smallest whole number not below x.");
  op.AddSample({{{DType::kF32, {3, 5}}}, {}, -3, 3});
  return {op};
}

}  // namespace mslua
