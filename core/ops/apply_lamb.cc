#include "core/ops/declare/optimizer.h"
#include "core/ops/define.h"

namespace mslua {
namespace {

Value SumOfSquares(GraphBuilder& g, Value x) {
  std::vector<int64_t> axes;
  for (int64_t d = 0; d < g.TypeOf(x).rank(); ++d) axes.push_back(d);
  return ReduceSum(g, Mul(g, x, x), axes, false);
}

Value SumOverGroup(GraphBuilder& g, Value x, const Attrs& attrs) {
  const std::vector<int64_t>& group = attrs.Ints("group");
  return group.empty() ? x : g.Op("all_reduce", {x}, {{"group", group}});
}

}  // namespace

MSLUA_OPERATOR(apply_lamb) {
  OpDef op("apply_lamb");
  op.Doc(
      "LAMB (You et al., 2020, algorithm 2): m and v as Adam's, corrected for their start at 0; r = m / (sqrt(v) + "
      "eps) + weight_decay * param; "
      "new_param = param - lr * (norm(param) / norm(r)) * r, where the ratio is 1 when either norm is 0. step counts "
      "from 1.");
  DeclareUpdate(op, {"m", "v"}, {"lr", "weight_decay", "step"});
  op.Attr("beta1", AttrKind::kFloat, 0.9).Attr("beta2", AttrKind::kFloat, 0.999).Attr("eps", AttrKind::kFloat, 1e-6);
  op.Attr("group", AttrKind::kInts, std::vector<int64_t>{}, "ranks that each have a slice of param; none: it is whole");
  op.Body([](GraphBuilder& g, absl::Span<const Value> in, const Attrs& attrs) -> std::vector<Value> {
    UpdateOperands u(g, {"param", "grad", "m", "v", "lr", "weight_decay", "step"}, in, attrs);
    // 1 - beta^step, which loses digits when it is computed as written.
    u.Let("correction1", "1 / -expm1(step * log(beta1))");
    u.Let("correction2", "1 / -expm1(step * log(beta2))");
    const Value m = u.Let("m", "beta1 * m + (1 - beta1) * grad");
    const Value v = u.Let("v", "beta2 * v + (1 - beta2) * grad * grad");
    const Value r = u.Let("r", "m * correction1 / (sqrt(v * correction2) + eps) + weight_decay * param");
    u.Set("param_square", SumOverGroup(g, SumOfSquares(g, u.Get("param")), attrs));
    u.Set("r_square", SumOverGroup(g, SumOfSquares(g, r), attrs));
    u.Let("trust", "select(logical_and(gt(param_square, 0), gt(r_square, 0)), sqrt(param_square / r_square), 1)");
    return u.Results({u.Let("param", "param - lr * trust * r"), m, v});
  });
  op.AddSample({{{DType::kF32, {3, 5}},
                 {DType::kF32, {3, 5}},
                 {DType::kF32, {3, 5}},
                 {DType::kF32, {3, 5}},
                 {DType::kF32, {}},
                 {DType::kF32, {}},
                 {DType::kF32, {}}},
                {},
                0.5,
                1.5});
  return {op};
}

}  // namespace mslua
