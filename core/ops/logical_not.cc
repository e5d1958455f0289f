#include "core/ops/define.h"

namespace mslua {

MSLUA_OPERATOR(logical_not) {
  OpDef op("logical_not");
  op.Class("LogicalNot").Doc("Whether x is false, element by element: bool.");
  op.Input("x", TypeClass::kBool).Rule("*r -> *r").ZeroGrad();
  op.formula = {"logical_not(x)"};
  op.AddSample({{{DType::kBool, {3, 5}}}});
  return {op};
}

}  // namespace mslua
