#include "core/ops/define.h"
#include "core/ops/ranks/collective.h"

namespace mslua {
namespace {

StatusOr<std::vector<TensorType>> SameType(const Attrs&, absl::Span<const TensorType> in) {
  return std::vector<TensorType>{in[0]};
}

GradFn Other(const char* name) {
  return [name](GradContext& c) {
    Attrs attrs = SameGroup(c.attrs);
    attrs.Set("root", c.attrs.Int("root"));
    return std::vector<Value>{c.g.Op(name, {c.dy[0]}, std::move(attrs))};
  };
}

}  // namespace

// `reduce` is its gradient: the sum at the root and zeros elsewhere.
MSLUA_OPERATOR(broadcast) {
  OpDef op = CollectiveOp("broadcast", "Broadcast", RankCall::kBroadcast, "The root's tensor, on every rank.");
  RankAttr(op, "root", "the rank that sends, by its number in the world").Infer(SameType).Grad(Other("reduce"));
  op.InPlace(0, 0);
  OpDef reduce = CollectiveOp("reduce", "", RankCall::kReduce,
                              "The sum of the ranks' tensors on rank `root`, zeros on the others.");
  RankAttr(reduce, "root", "the rank that receives, by its number in the world").Infer(SameType);
  reduce.Grad(Other("broadcast"));
  for (OpDef* o : {&op, &reduce})
    o->AddSample({{{DType::kF32, {3, 5}}}, {{"group", std::vector<int64_t>{0}}, {"root", int64_t{0}}}});
  return {op, reduce};
}

}  // namespace mslua
