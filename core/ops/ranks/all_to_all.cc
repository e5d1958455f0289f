#include "core/ops/define.h"
#include "core/ops/ranks/collective.h"

namespace mslua {

MSLUA_OPERATOR(all_to_all) {
  OpDef op =
      CollectiveOp("all_to_all", "AlltoAll", RankCall::kAllToAll,
                   "x is split into a part for each rank of the group, part k goes to the k-th rank; the parts that a "
                   "rank gets are joined, in the group's order.");
  op.Attr("split_axis", AttrKind::kAxis, int64_t{0}, "the dimension to split")
      .Attr("concat_axis", AttrKind::kAxis, int64_t{0}, "the dimension to join along");
  op.Infer([](const Attrs& a, absl::Span<const TensorType> in) -> StatusOr<std::vector<TensorType>> {
    ASSIGN_OR_RETURN(const auto part, ScatteredType(a, in[0], a.Int("split_axis")));
    return GatheredType(a, part[0], a.Int("concat_axis"));
  });
  op.Grad([](GradContext& c) {
    Attrs attrs = SameGroup(c.attrs);
    attrs.Set("split_axis", c.attrs.Int("concat_axis")).Set("concat_axis", c.attrs.Int("split_axis"));
    return std::vector<Value>{c.g.Op("all_to_all", {c.dy[0]}, std::move(attrs))};
  });
  op.AddSample({{{DType::kF32, {3, 5}}}, {{"group", std::vector<int64_t>{0}}, {"split_axis", int64_t{1}}}});
  return {op};
}

}  // namespace mslua
