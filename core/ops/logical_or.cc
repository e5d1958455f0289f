#include "core/ops/define.h"

namespace mslua {

MSLUA_OPERATOR(logical_or) {
  OpDef op("logical_or");
  op.Class("LogicalOr").Doc("Whether either is true, element by element: bool.");
  op.Input("a", TypeClass::kBool).Input("b", TypeClass::kBool).Rule("*r, *r -> *r").ZeroGrad();
  op.formula = {"logical_or(a, b)"};
  op.AddSample({{{DType::kBool, {3, 5}}, {DType::kBool, {3, 5}}}});
  return {op};
}

}  // namespace mslua
