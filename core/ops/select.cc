#include "core/ops/define.h"

namespace mslua {

MSLUA_OPERATOR(select) {
  OpDef op("select");
  op.Class("Select").Doc("a where condition is true and b elsewhere, element by element.");
  op.Input("condition", TypeClass::kBool).Input("a").Input("b").AllTypes().Rule("*r, *r, *r -> *r");
  op.formula = {"select(condition, a, b)"};
  op.Grad(GradFormula({"", "select(condition, dy, 0)", "select(condition, 0, dy)"}));
  op.AddSample({{{DType::kBool, {3, 5}}, {DType::kF32, {3, 5}}, {DType::kF32, {3, 5}}}});
  return {op};
}

}  // namespace mslua
