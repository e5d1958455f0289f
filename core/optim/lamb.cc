#include "core/optim/define.h"

namespace mslua {

MSLUA_OPTIMIZER(lamb) {
  OptimizerDef def("lamb", "Lamb");
  def.Doc("LAMB (You et al., 2020): Adam's step, scaled for each parameter by the ratio of norms.");
  def.Params().Rate();
  def.Number("beta1", 0.9, Fraction(), "the share of the mean of gradients that stays");
  def.Number("beta2", 0.999, Fraction(), "the share of the mean of their squares that stays");
  def.Number("eps", 1e-6, Above(0), "added to the root of the mean of squares");
  def.WeightDecay("times the parameter is added to Adam's step");
  def.Update("apply_lamb",
             "LAMB (You et al., 2020, algorithm 2): m and v as Adam's, corrected for their start at 0; r = m / "
             "(sqrt(v) + eps) + weight_decay * param; new_param = param - lr * (norm(param) / norm(r)) * r, where the "
             "ratio is 1 when either norm is 0. step counts from 1.")
      .State("m", "moment1")
      .State("v", "moment2")
      .Scalars({"lr", "weight_decay", "step"})
      .Settings({"beta1", "beta2", "eps"})
      .Sums()
      .Formula([](UpdateOperands& u) -> std::vector<Value> {
        // 1 - beta^step, which loses digits when it is computed as written.
        u.Let("correction1", "1 / -expm1(step * log(beta1))");
        u.Let("correction2", "1 / -expm1(step * log(beta2))");
        const Value m = u.Let("m", "beta1 * m + (1 - beta1) * grad");
        const Value v = u.Let("v", "beta2 * v + (1 - beta2) * grad * grad");
        const Value r = u.Let("r", "m * correction1 / (sqrt(v * correction2) + eps) + weight_decay * param");
        u.Set("param_square", u.Sum(Mul(u.g(), u.Get("param"), u.Get("param"))));
        u.Set("r_square", u.Sum(Mul(u.g(), r, r)));
        u.Let("trust",
              "select(logical_and(gt(param_square, 0), gt(r_square, 0)), sqrt(param_square) / sqrt(r_square), 1)");
        return u.Results({u.Let("param", "param - lr * trust * r"), m, v});
      });
  return def;
}

}  // namespace mslua
