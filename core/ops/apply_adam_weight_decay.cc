#include "core/ops/declare/optimizer.h"
#include "core/ops/define.h"

namespace mslua {

MSLUA_OPERATOR(apply_adam_weight_decay) {
  OpDef op("apply_adam_weight_decay");
  op.Doc(
      "AdamW (Loshchilov and Hutter, 2019), as PyTorch's: m = beta1 * m + (1 - beta1) * grad; v = beta2 * v + (1 - "
      "beta2) * grad^2; "
      "new_param = param - lr * ((m / (1 - beta1^step)) / (sqrt(v / (1 - beta2^step)) + eps) + weight_decay * param). "
      "step counts from 1; m and v start "
      "at 0. Without bias_correction the divisors by powers are 1, as in BERT's.");
  DeclareUpdate(op, {"m", "v"}, {"lr", "weight_decay", "step"});
  op.Attr("beta1", AttrKind::kFloat, 0.9).Attr("beta2", AttrKind::kFloat, 0.999).Attr("eps", AttrKind::kFloat, 1e-8);
  op.Attr("bias_correction", AttrKind::kBool, true);
  op.Body([](GraphBuilder& g, absl::Span<const Value> in, const Attrs& attrs) -> std::vector<Value> {
    UpdateOperands u(g, {"param", "grad", "m", "v", "lr", "weight_decay", "step"}, in, attrs);
    const Value m = u.Let("m", "beta1 * m + (1 - beta1) * grad");
    const Value v = u.Let("v", "beta2 * v + (1 - beta2) * grad * grad");
    if (!attrs.Bool("bias_correction"))
      return u.Results({u.Let("param", "param - lr * (m / (sqrt(v) + eps) + weight_decay * param)"), m, v});
    // 1 - beta^step, which loses digits when it is computed as written.
    u.Let("rate", "lr / -expm1(step * log(beta1))");
    u.Let("correction", "1 / -expm1(step * log(beta2))");
    u.Let("decay", "1 - lr * weight_decay");
    return u.Results({u.Let("param", "param * decay - rate * m / (sqrt(v * correction) + eps)"), m, v});
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
  op.AddSample({{{DType::kF32, {3, 5}},
                 {DType::kF32, {3, 5}},
                 {DType::kF32, {3, 5}},
                 {DType::kF32, {3, 5}},
                 {DType::kF32, {}},
                 {DType::kF32, {}},
                 {DType::kF32, {}}},
                {{"bias_correction", false}},
                0.5,
                1.5});
  return {op};
}

}  // namespace mslua
