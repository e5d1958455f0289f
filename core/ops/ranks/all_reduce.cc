#include "core/ops/define.h"
#include "core/ops/ranks/collective.h"

namespace mslua {
namespace {

std::vector<Value> AllReduceGrad(GradContext& c) {
  const std::string& reduction = c.attrs.Str("op");
  if (reduction == "sum" || reduction == "mean") return {AllReduceGradient(c.g, c.attrs, c.dy[0])};
  if (reduction == "prod") {
    c.g.Fail(absl::UnimplementedError("all_reduce of a product has no gradient (reduce the logarithms instead)"));
    return {Value()};
  }
  // max and min: shared by the ranks that have the extreme, as reduce_max does.
  const Value hit = Cast(c.g, c.g.Op("equal", {c.x(0), c.outputs[0]}), c.g.TypeOf(c.x(0)).dtype);
  const Value count = c.g.Op("all_reduce", {hit}, SameGroup(c.attrs));
  return {Mul(c.g, hit, Div(c.g, c.g.Op("all_reduce", {c.dy[0]}, SameGroup(c.attrs)), count))};
}

}  // namespace

MSLUA_OPERATOR(all_reduce) {
  OpDef op = CollectiveOp("all_reduce", "AllReduce", RankCall::kAllReduce,
                          "The ranks' tensors combined element by element, on every rank.");
  op.Choice("op", {"sum", "prod", "max", "min", "mean"}, "how values are combined")
      .Attr("fusion", AttrKind::kInt, int64_t{0}, "calls of one number travel together; 0: alone");
  op.Infer([](const Attrs&, absl::Span<const TensorType> in) -> StatusOr<std::vector<TensorType>> {
    return std::vector<TensorType>{in[0]};
  });
  op.InPlace(0, 0).Grad(AllReduceGrad);
  op.AddSample({{{DType::kF32, {3, 5}}}, {{"group", std::vector<int64_t>{0}}}});
  op.AddSample({{{DType::kF32, {3, 5}}}, {{"group", std::vector<int64_t>{0}}, {"op", std::string("max")}}});
  return {op};
}

}  // namespace mslua
