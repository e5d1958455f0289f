#include "core/base/rng.h"
#include "core/ops/declare/random.h"
#include "core/ops/define.h"

namespace mslua {

MSLUA_OPERATOR(random_normal) {
  OpDef op = RandomTensorOp("random_normal", FillNormal, "stddev", "mean", false);
  op.Class("StandardNormal")
      .Doc("Numbers from a normal distribution, others at every `step` (the training step's number).");
  op.Attr("mean", AttrKind::kFloat, 0.0, "the mean").Attr("stddev", AttrKind::kFloat, 1.0, "the standard deviation");
  return {op};
}

}  // namespace mslua
