#include "core/ops/define.h"
#include "core/ops/ranks/collective.h"

namespace mslua {

MSLUA_OPERATOR(all_gather) {
  OpDef op = CollectiveOp("all_gather", "AllGather", RankCall::kAllGather,
                          "The ranks' tensors joined along `axis`, in the group's order.");
  op.Attr("axis", AttrKind::kAxis, int64_t{0}, "the dimension to join along")
      .Attr("fusion", AttrKind::kInt, int64_t{0}, "calls of one number travel together; 0: alone");
  op.Infer([](const Attrs& a, absl::Span<const TensorType> in) { return GatheredType(a, in[0], a.Int("axis")); });
  op.Grad([](GradContext& c) {
    Attrs attrs = SameGroup(c.attrs);
    attrs.Set("axis", c.attrs.Int("axis"));
    return std::vector<Value>{c.g.Op("reduce_scatter", {c.dy[0]}, std::move(attrs))};
  });
  op.AddSample({{{DType::kF32, {3, 5}}}, {{"group", std::vector<int64_t>{0}}, {"axis", int64_t{1}}}});
  return {op};
}

}  // namespace mslua
