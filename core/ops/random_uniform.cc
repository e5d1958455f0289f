#include "core/base/rng.h"
#include "core/ops/declare/random.h"
#include "core/ops/define.h"

namespace mslua {

MSLUA_OPERATOR(random_uniform) {
  OpDef op = RandomTensorOp("random_uniform", FillUniform, "high", "low", true);
  op.Class("UniformReal")
      .Doc(
          "Numbers from a uniform distribution over [low, high), others at every `step` (the training step's number).");
  op.Attr("low", AttrKind::kFloat, 0.0, "the least").Attr("high", AttrKind::kFloat, 1.0, "the end");
  return {op};
}

}  // namespace mslua
