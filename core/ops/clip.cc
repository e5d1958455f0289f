#include <limits>

#include "absl/strings/str_cat.h"
#include "core/ops/define.h"

namespace mslua {

MSLUA_OPERATOR(clip) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  // Of one comparison: a fused kernel that joins two runs a row at a time.
  OpDef op = ElementwiseOp("clip", {"x"}, "min(max(x, min), max)", {"select(equal(min(max(x, min), max), x), dy, 0)"});
  op.Class("Clip").Doc("x limited to [min, max]; NaN stays NaN. Outside, the gradient is 0.");
  op.Attr("min", AttrKind::kFloat, -kInfinity, "the least value")
      .Attr("max", AttrKind::kFloat, kInfinity, "the greatest value");
  op.Check([](const Attrs& a, absl::Span<const TensorType>) -> Status {
    if (a.Float("min") <= a.Float("max")) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("min is ", a.Float("min"), " and max is ", a.Float("max"), ", expected min <= max"));
  });
  op.AddSample({{{DType::kF32, {3, 5}}}, {{"min", -0.5}, {"max", 0.25}}});
  return {op};
}

}  // namespace mslua
