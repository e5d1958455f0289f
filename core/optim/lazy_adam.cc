#include "core/optim/define.h"

namespace mslua {

MSLUA_OPTIMIZER(lazy_adam) {
  OptimizerDef def("lazy_adam", "LazyAdam");
  def.Doc(
      "Adam for tables of embeddings: the rows that no index of a batch names stay as they are, with their moments, "
      "and the time of a step does not depend on the table's height. weight_decay, too, concerns the named rows. Other "
      "parameters, and tables that the network also reads in another way, get an update of all elements. eps is added "
      "to the root of the mean of squares before its correction, as in MindSpore's LazyAdam and PyTorch's SparseAdam.");
  def.Params().Rate(1e-3);
  def.Number("beta1", 0.9, Fraction(), "the share of the mean of gradients that stays");
  def.Number("beta2", 0.999, Fraction(), "the share of the mean of their squares that stays");
  def.Number("eps", 1e-8, Above(0), "added to the root of the mean of squares");
  def.WeightDecay().LossScale();
  def.Unnamed([](const Attrs&, double) { return UnnamedRows::kLeft; });
  def.Update("apply_lazy_adam",
             "Adam with eps beside the uncorrected root (Kingma and Ba, 2015, end of section 2): g = grad + "
             "weight_decay * param; m = beta1 * m + (1 - beta1) * g; v = beta2 * v + (1 - beta2) * g^2; new_param = "
             "param - lr * sqrt(1 - beta2^step) / (1 - beta1^step) * m / (sqrt(v) + eps). step counts from 1; m and v "
             "start at 0.")
      .State("m", "moment1")
      .State("v", "moment2")
      .Scalars({"lr", "weight_decay", "step"})
      .Settings({"beta1", "beta2", "eps"})
      .Formula([](UpdateOperands& u) -> std::vector<Value> {
        // 1 - beta^step, which loses digits when it is computed as written.
        u.Let("rate", "lr * sqrt(-expm1(step * log(beta2))) / -expm1(step * log(beta1))");
        u.Let("grad", "grad + weight_decay * param");
        const Value m = u.Let("m", "beta1 * m + (1 - beta1) * grad");
        const Value v = u.Let("v", "beta2 * v + (1 - beta2) * grad * grad");
        return u.Results({u.Let("param", "param - rate * m / (sqrt(v) + eps)"), m, v});
      });
  return def;
}

}  // namespace mslua
