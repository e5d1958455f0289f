#include "core/ops/define.h"

namespace mslua {

MSLUA_OPERATOR(sinh) {
  OpDef sinh = ElementwiseOp("sinh", {"x"}, "sinh(x)", {"dy * cosh(x)"});
  sinh.Class("Sinh").Doc("Hyperbolic sine: (exp(x) - exp(-x)) / 2.");
  sinh.AddSample({{{DType::kF32, {3, 5}}}, {}, -3, 3});

  OpDef cosh = ElementwiseOp("cosh", {"x"}, "cosh(x)", {"dy * sinh(x)"});
  cosh.Class("Cosh").Doc("Hyperbolic cosine: (exp(x) + exp(-x)) / 2.");
  cosh.AddSample({{{DType::kF32, {3, 5}}}, {}, -3, 3});
  return {sinh, cosh};
}

}  // namespace mslua
