#include "core/ops/define.h"
#include "core/ops/ranks/collective.h"

namespace mslua {

MSLUA_OPERATOR(reduce_scatter) {
  OpDef op =
      CollectiveOp("reduce_scatter", "ReduceScatter", RankCall::kReduceScatter,
                   "The ranks' tensors combined element by element and split along `axis`: a part for each rank.");
  op.Choice("op", {"sum", "prod", "max", "min", "mean"}, "how values are combined")
      .Attr("axis", AttrKind::kAxis, int64_t{0}, "the dimension to split")
      .Attr("fusion", AttrKind::kInt, int64_t{0}, "calls of one number travel together; 0: alone");
  op.Infer([](const Attrs& a, absl::Span<const TensorType> in) { return ScatteredType(a, in[0], a.Int("axis")); });
  op.Grad([](GradContext& c) {
    const std::string& reduction = c.attrs.Str("op");
    if (reduction != "sum" && reduction != "mean") {
      c.g.Fail(absl::UnimplementedError(
          "reduce_scatter has a gradient for sum and mean only (all_reduce and a slice have it for max and min)"));
      return std::vector<Value>{Value()};
    }
    Attrs attrs = SameGroup(c.attrs);
    attrs.Set("axis", c.attrs.Int("axis"));
    Value dx = c.g.Op("all_gather", {c.dy[0]}, std::move(attrs));
    if (reduction == "mean") dx = Mul(c.g, dx, 1.0 / static_cast<double>(GroupSize(c.attrs)));
    return std::vector<Value>{dx};
  });
  op.AddSample({{{DType::kF32, {3, 5}}}, {{"group", std::vector<int64_t>{0}}, {"axis", int64_t{1}}}});
  return {op};
}

}  // namespace mslua
