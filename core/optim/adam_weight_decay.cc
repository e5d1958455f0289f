#include "core/optim/define.h"

namespace mslua {

MSLUA_OPTIMIZER(adam_weight_decay) {
  OptimizerDef def("adam_weight_decay", "AdamWeightDecay");
  def.Doc(
      "AdamW (Loshchilov and Hutter, 2019), the decay apart from the gradient. As MindSpore's and BERT's its moments "
      "are not corrected for beginning at 0; nn.AdamW corrects them.");
  def.Params().Rate(1e-3);
  def.Number("beta1", 0.9, Fraction(), "the share of the mean of gradients that stays");
  def.Number("beta2", 0.999, Fraction(), "the share of the mean of their squares that stays");
  def.Number("eps", 1e-6, Above(0), "added to the root of the mean of squares");
  def.WeightDecay("lr times it times the parameter is subtracted from the parameter");
  def.Bool("bias_correction", false, "correct the moments for beginning at 0, as Adam does");
  def.Update("apply_adam_weight_decay",
             "AdamW (Loshchilov and Hutter, 2019), as PyTorch's: m = beta1 * m + (1 - beta1) * grad; v = beta2 * v + "
             "(1 - beta2) * grad^2; new_param = param - lr * ((m / (1 - beta1^step)) / (sqrt(v / (1 - beta2^step)) + "
             "eps) + weight_decay * param). step counts from 1; m and v start at 0. Without bias_correction the "
             "divisors by powers are 1, as in BERT's.")
      .State("m", "moment1")
      .State("v", "moment2")
      .Scalars({"lr", "weight_decay", "step"})
      .Settings({"beta1", "beta2", "eps", "bias_correction"})
      .Formula([](UpdateOperands& u) -> std::vector<Value> {
        const Value m = u.Let("m", "beta1 * m + (1 - beta1) * grad");
        const Value v = u.Let("v", "beta2 * v + (1 - beta2) * grad * grad");
        if (!u.attrs().Bool("bias_correction"))
          return u.Results({u.Let("param", "param - lr * (m / (sqrt(v) + eps) + weight_decay * param)"), m, v});
        // 1 - beta^step, which loses digits when it is computed as written.
        u.Let("rate", "lr / -expm1(step * log(beta1))");
        u.Let("correction", "1 / -expm1(step * log(beta2))");
        u.Let("decay", "1 - lr * weight_decay");
        return u.Results({u.Let("param", "param * decay - rate * m / (sqrt(v * correction) + eps)"), m, v});
      })
      .Sample({{"bias_correction", true}});
  return def;
}

}  // namespace mslua
