#include "core/ops/define.h"
#include "core/ops/ranks/collective.h"

namespace mslua {

MSLUA_OPERATOR(collective_permute) {
  OpDef op = CollectiveOp("collective_permute", "", RankCall::kPermute,
                          "The ranks of the group change their tensors: each gets that of rank `source`, and its own "
                          "goes to rank `target`. Sources and targets of all ranks are a permutation.");
  op.Required("source", AttrKind::kInt, "the rank whose tensor comes")
      .Required("target", AttrKind::kInt, "the rank that gets this one's");
  op.Infer([](const Attrs&, absl::Span<const TensorType> in) -> StatusOr<std::vector<TensorType>> {
    return std::vector<TensorType>{in[0]};
  });
  op.Grad([](GradContext& c) {
    Attrs attrs = SameGroup(c.attrs);
    attrs.Set("source", c.attrs.Int("target")).Set("target", c.attrs.Int("source"));
    return std::vector<Value>{c.g.Op("collective_permute", {c.dy[0]}, std::move(attrs))};
  });
  op.AddSample(
      {{{DType::kF32, {3, 5}}}, {{"group", std::vector<int64_t>{0}}, {"source", int64_t{0}}, {"target", int64_t{0}}}});
  return {op};
}

}  // namespace mslua
