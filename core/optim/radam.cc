#include "absl/strings/str_replace.h"
#include "core/optim/define.h"

namespace mslua {
namespace {

// What m is multiplied by, beside 1 / (sqrt(v) + eps), where r is above 5; 0 elsewhere. In f64: r is at first a small
// difference of large numbers.
Value Scale(UpdateOperands& u) {
  GraphBuilder& g = u.g();
  const Value step = u.Get("step");
  const std::string formula = absl::StrReplaceAll(
      "select(gt(R, 5), sqrt(UNIT * max((R - 4) * (R - 2), 1) / max(R, 1) * (N / ((N - 4) * (N - 2)))), 0)",
      {{"R", "(2 / (1 - beta2) - 1 - 2 * t * exp(t * log(beta2)) / -expm1(t * log(beta2)))"},
       {"UNIT", "-expm1(t * log(beta2))"},
       {"N", "(2 / (1 - beta2) - 1)"}});
  return Cast(g, EmitFormula(g, formula, {{"t", Cast(g, step, DType::kF64)}}, u.attrs()), g.TypeOf(step).dtype);
}

}  // namespace

MSLUA_OPTIMIZER(radam) {
  OptimizerDef def("radam", "RAdam");
  def.Doc(
      "RAdam (Liu et al., 2020), as PyTorch's: Adam whose first steps are not divided by the root of the mean square, "
      "and whose later ones are rectified for the variance of that mean. eps is added to the root before its "
      "correction. weight_decay is added to the gradient.");
  def.Params().Rate(1e-3);
  def.Number("beta1", 0.9, Fraction(), "the share of the mean of gradients that stays");
  def.Number("beta2", 0.999, Fraction(), "the share of the mean of their squares that stays");
  def.Number("eps", 1e-8, Above(0), "added to the root of the mean of squares");
  def.WeightDecay().LossScale();
  def.Update(
         "apply_radam",
         "RAdam (Liu et al., 2020, algorithm 2): g = grad + weight_decay * param; m and v as Adam's; n = 2 / (1 - "
         "beta2) - 1; r = n - 2 * step * beta2^step / (1 - beta2^step). Where r is above 5, new_param = param - lr * "
         "m / (1 - beta1^step) * sqrt(1 - beta2^step) / (sqrt(v) + eps) * sqrt((r - 4) * (r - 2) * n / ((n - 4) * "
         "(n - 2) * r)); else param - lr * m / (1 - beta1^step). step counts from 1; m and v start at 0.")
      .State("m", "moment1")
      .State("v", "moment2")
      .Scalars({"lr", "weight_decay", "step"})
      .Settings({"beta1", "beta2", "eps"})
      .Formula([](UpdateOperands& u) -> std::vector<Value> {
        u.Let("rate", "lr / -expm1(step * log(beta1))");
        u.Let("grad", "grad + weight_decay * param");
        const Value m = u.Let("m", "beta1 * m + (1 - beta1) * grad");
        const Value v = u.Let("v", "beta2 * v + (1 - beta2) * grad * grad");
        u.Let("d", "m");
        if (2 / (1 - u.attrs().Float("beta2")) - 1 > 5) {  // else r is never above 5
          u.Set("scale", Scale(u));
          u.Let("d", "m * select(gt(scale, 0), scale / (sqrt(v) + eps), 1)");
        }
        return u.Results({u.Let("param", "param - rate * d"), m, v});
      });
  return def;
}

}  // namespace mslua
