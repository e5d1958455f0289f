#include "core/ops/define.h"

namespace mslua {

MSLUA_OPERATOR(pow) {
  // d/db a^b = a^b log(a) holds for a > 0; elsewhere the exponent's gradient is 0, and a^0 is flat in a even at 0.
  OpDef op = ElementwiseOp("pow", {"a", "b"}, "pow(a, b)",
                           {"dy * select(eq(b, 0), 0, b * pow(a, b - 1))", "dy * y * log(select(gt(a, 0), a, 1))"});
  op.Computes(Precision::kWide);
  op.Class("Pow").Doc("a to the power b, element by element.").NumericTypes();
  op.AddSample({{{DType::kF32, {3, 5}}, {DType::kF32, {3, 5}}}, {}, 0.5, 2});
  return {op};
}

}  // namespace mslua
