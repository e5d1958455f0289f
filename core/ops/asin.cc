#include "core/ops/define.h"

namespace mslua {

MSLUA_OPERATOR(asin) {
  OpDef asin = ElementwiseOp("asin", {"x"}, "asin(x)", {"dy / sqrt((1 - x) * (1 + x))"});
  asin.Class("Asin").Doc("The angle in radians, from -pi / 2 to pi / 2, whose sine is x; NaN beyond -1 and 1.");
  asin.AddSample({{{DType::kF32, {3, 5}}}, {}, -0.9, 0.9});

  OpDef acos = ElementwiseOp("acos", {"x"}, "acos(x)", {"-dy / sqrt((1 - x) * (1 + x))"});
  acos.Class("ACos").Doc("The angle in radians, from 0 to pi, whose cosine is x; NaN beyond -1 and 1.");
  acos.AddSample({{{DType::kF32, {3, 5}}}, {}, -0.9, 0.9});
  return {asin, acos};
}

}  // namespace mslua
