#include "core/ops/define.h"

namespace mslua {

MSLUA_OPERATOR(pow) {
  // d/db a^b = a^b log(a) has no value for a < 0 (NaN), and is taken as 0 at a = 0. a^0 is flat in a even at 0, where
  // the power of -1 has no value: its place is taken by that of 0, for derivatives of any order.
  OpDef op = ElementwiseOp("pow", {"a", "b"}, "pow(a, b)",
                           {"dy * b * pow(a, select(eq(b, 0), 1, b) - 1)", "dy * y * log(select(eq(a, 0), 1, a))"});
  op.Computes(Precision::kWide);
  op.Class("Pow")
      .Doc("a to the power b, element by element. Of integers with b < 0 the fraction is dropped, and 0 gives 0.")
      .NumericTypes();
  op.AddSample({{{DType::kF32, {3, 5}}, {DType::kF32, {3, 5}}}, {}, 0.5, 2});
  return {op};
}

}  // namespace mslua
