#include "core/ops/define.h"

namespace mslua {

MSLUA_OPERATOR(atan) {
  OpDef atan = ElementwiseOp("atan", {"x"}, "atan(x)", {"dy / (1 + x * x)"});
  atan.Class("Atan").Doc("The angle in radians, from -pi / 2 to pi / 2, whose tangent is x.");
  atan.AddSample({{{DType::kF32, {3, 5}}}, {}, -3, 3});

  OpDef atan2 =
      ElementwiseOp("atan2", {"a", "b"}, "atan2(a, b)", {"dy * b / (a * a + b * b)", "-dy * a / (a * a + b * b)"});
  atan2.Class("Atan2").Doc(
      "The angle in radians, from -pi to pi, between the first axis and the point (b, a): atan(a / b) where b > 0.");
  atan2.AddSample({{{DType::kF32, {3, 5}}, {DType::kF32, {3, 5}}}, {}, 0.5, 2});
  atan2.AddSample({{{DType::kF32, {3, 5}}, {DType::kF32, {3, 5}}}, {}, -2, -0.5});
  return {atan, atan2};
}

}  // namespace mslua
