#include "core/ops/define.h"

namespace mslua {

MSLUA_OPERATOR(asinh) {
  OpDef asinh = ElementwiseOp("asinh", {"x"}, "asinh(x)", {"dy / sqrt(1 + x * x)"});
  asinh.Class("Asinh").Doc("The number whose hyperbolic sine is x.");
  asinh.AddSample({{{DType::kF32, {3, 5}}}, {}, -3, 3});

  OpDef acosh = ElementwiseOp("acosh", {"x"}, "acosh(x)", {"dy / sqrt((x - 1) * (x + 1))"});
  acosh.Class("Acosh").Doc("The number, at least 0, whose hyperbolic cosine is x; NaN below 1.");
  acosh.AddSample({{{DType::kF32, {3, 5}}}, {}, 1.2, 4});

  OpDef atanh = ElementwiseOp("atanh", {"x"}, "atanh(x)", {"dy / ((1 - x) * (1 + x))"});
  atanh.Class("Atanh").Doc("The number whose hyperbolic tangent is x; NaN beyond -1 and 1.");
  atanh.AddSample({{{DType::kF32, {3, 5}}}, {}, -0.9, 0.9});
  return {asinh, acosh, atanh};
}

}  // namespace mslua
