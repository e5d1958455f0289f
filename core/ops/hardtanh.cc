#include "absl/strings/str_cat.h"
#include "core/ops/define.h"

namespace mslua {

MSLUA_OPERATOR(hardtanh) {
  // As in clip, of one comparison. NaN lets the gradient through.
  OpDef op = ElementwiseOp("hardtanh", {"x"}, "min(max(x, min_val), max_val)",
                           {"select(le(min(x - min_val, max_val - x), 0), 0, dy)"});
  op.Class("Hardtanh")
      .Doc("x limited to [min_val, max_val], as clip does, but with the gradient 0 at the borders too.");
  op.Attr("min_val", AttrKind::kFloat, -1.0, "the least value")
      .Attr("max_val", AttrKind::kFloat, 1.0, "the greatest value");
  op.Check([](const Attrs& a, absl::Span<const TensorType>) -> Status {
    if (a.Float("min_val") < a.Float("max_val")) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("min_val is ", a.Float("min_val"), " and max_val is ",
                                                   a.Float("max_val"), ", expected min_val < max_val"));
  });
  op.AddSample({{{DType::kF32, {3, 5}}}, {{"min_val", -0.5}, {"max_val", 0.25}}});
  return {op};
}

}  // namespace mslua
