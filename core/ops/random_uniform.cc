#include "absl/strings/str_cat.h"
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
  op.Check([](const Attrs& a, absl::Span<const TensorType>) -> Status {
    if (a.Float("low") <= a.Float("high")) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("low is ", a.Float("low"), " and high is ", a.Float("high"), ", expected low <= high"));
  });
  return {op};
}

}  // namespace mslua
