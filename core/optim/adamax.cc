#include "core/optim/define.h"

namespace mslua {

MSLUA_OPTIMIZER(adamax) {
  OptimizerDef def("adamax", "AdaMax");
  def.Doc(
      "AdaMax (Kingma and Ba, 2015, section 7.1): Adam with the largest of the decayed gradients so far in place of "
      "the root of their mean square. As PyTorch's: eps is added to each absolute value. weight_decay is added to the "
      "gradient.");
  def.Params().Rate(2e-3);
  def.Number("beta1", 0.9, Fraction(), "the share of the mean of gradients that stays");
  def.Number("beta2", 0.999, Fraction(), "the share of the largest gradient that stays");
  def.Number("eps", 1e-8, Above(0), "added to the gradient's absolute value");
  def.WeightDecay().LossScale();
  def.Update(
         "apply_adamax",
         "AdaMax (Kingma and Ba, 2015, algorithm 2): g = grad + weight_decay * param; m = beta1 * m + (1 - beta1) * "
         "g; v = max(beta2 * v, abs(g) + eps); new_param = param - lr / (1 - beta1^step) * m / v. step counts from "
         "1; m and v start at 0.")
      .State("m", "moment1")
      .State("v", "infinity_norm")
      .Scalars({"lr", "weight_decay", "step"})
      .Settings({"beta1", "beta2", "eps"})
      .Formula([](UpdateOperands& u) -> std::vector<Value> {
        // 1 - beta^step, which loses digits when it is computed as written.
        u.Let("rate", "lr / -expm1(step * log(beta1))");
        u.Let("grad", "grad + weight_decay * param");
        const Value m = u.Let("m", "beta1 * m + (1 - beta1) * grad");
        const Value v = u.Let("v", "max(beta2 * v, abs(grad) + eps)");
        return u.Results({u.Let("param", "param - rate * m / v"), m, v});
      });
  return def;
}

}  // namespace mslua
