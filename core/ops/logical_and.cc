#include "core/ops/define.h"

namespace mslua {

MSLUA_OPERATOR(logical_and) {
  OpDef op("logical_and");
  op.Class("LogicalAnd").Doc("Whether both are true, element by element: bool.");
  op.Input("a", TypeClass::kBool).Input("b", TypeClass::kBool).Rule("*r, *r -> *r").ZeroGrad();
  op.formula = {"logical_and(a, b)"};
  op.AddSample({{{DType::kBool, {3, 5}}, {DType::kBool, {3, 5}}}});
  return {op};
}

}  // namespace mslua
