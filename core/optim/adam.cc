#include "core/optim/define.h"

namespace mslua {

MSLUA_OPTIMIZER(adam) {
  OptimizerDef def("adam", "Adam");
  def.Doc(
      "Adam (Kingma and Ba, 2015): steps scaled by running means of gradients and their squares. weight_decay is added "
      "to the gradient.");
  def.Params().Rate(1e-3);
  def.Number("beta1", 0.9, Fraction(), "the share of the mean of gradients that stays");
  def.Number("beta2", 0.999, Fraction(), "the share of the mean of their squares that stays");
  def.Number("eps", 1e-8, Above(0), "added to the root of the mean of squares");
  def.WeightDecay().LossScale();
  def.Update("apply_adam",
             "Adam (Kingma and Ba, 2015, algorithm 1): g = grad + weight_decay * param; m = beta1 * m + (1 - beta1) * "
             "g; v = beta2 * v + (1 - beta2) * g^2; new_param = param - lr * (m / (1 - beta1^step)) / (sqrt(v / (1 - "
             "beta2^step)) + eps). step counts from 1; m and v start at 0.")
      .State("m", "moment1")
      .State("v", "moment2")
      .Scalars({"lr", "weight_decay", "step"})
      .Settings({"beta1", "beta2", "eps"})
      .Formula([](UpdateOperands& u) -> std::vector<Value> {
        // 1 - beta^step, which loses digits when it is computed as written.
        u.Let("rate", "lr / -expm1(step * log(beta1))");
        u.Let("correction", "1 / -expm1(step * log(beta2))");
        u.Let("grad", "grad + weight_decay * param");
        const Value m = u.Let("m", "beta1 * m + (1 - beta1) * grad");
        const Value v = u.Let("v", "beta2 * v + (1 - beta2) * grad * grad");
        return u.Results({u.Let("param", "param - rate * m / (sqrt(v * correction) + eps)"), m, v});
      });
  return def;
}

}  // namespace mslua
