#include "core/ops/declare/optimizer.h"
#include "core/ops/define.h"

namespace mslua {

MSLUA_OPERATOR(apply_adam) {
  OpDef op("apply_adam");
  op.Doc(
      "Adam (Kingma and Ba, 2015, algorithm 1): g = grad + weight_decay * param; m = beta1 * m + (1 - beta1) * g; v = "
      "beta2 * v + (1 - beta2) * g^2; "
      "new_param = param - lr * (m / (1 - beta1^step)) / (sqrt(v / (1 - beta2^step)) + eps). step counts from 1; m and "
      "v start at 0.");
  DeclareUpdate(op, {"m", "v"}, {"lr", "weight_decay", "step"});
  op.Attr("beta1", AttrKind::kFloat, 0.9).Attr("beta2", AttrKind::kFloat, 0.999).Attr("eps", AttrKind::kFloat, 1e-8);
  op.Body([](GraphBuilder& g, absl::Span<const Value> in, const Attrs& attrs) -> std::vector<Value> {
    UpdateOperands u(g, {"param", "grad", "m", "v", "lr", "weight_decay", "step"}, in, attrs);
    // 1 - beta^step, which loses digits when it is computed as written.
    u.Let("rate", "lr / -expm1(step * log(beta1))");
    u.Let("correction", "1 / -expm1(step * log(beta2))");
    u.Let("grad", "grad + weight_decay * param");
    const Value m = u.Let("m", "beta1 * m + (1 - beta1) * grad");
    const Value v = u.Let("v", "beta2 * v + (1 - beta2) * grad * grad");
    return u.Results({u.Let("param", "param - rate * m / (sqrt(v * correction) + eps)"), m, v});
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
