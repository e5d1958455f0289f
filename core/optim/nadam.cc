#include <cmath>

#include "absl/strings/str_replace.h"
#include "core/optim/define.h"

namespace mslua {
namespace {

// A formula of t, computed in f64: `log_product` is the logarithm of mu(1) * ... * mu(t).
Value OfStep(GraphBuilder& g, absl::string_view formula, Value t, Value log_product, const Attrs& attrs) {
  const std::string text =
      absl::StrReplaceAll(formula, {{"MU", "(beta1 * (1 - 0.5 * exp(t * momentum_decay * log(0.96))))"},
                                    {"NEXT", "(beta1 * (1 - 0.5 * exp((t + 1) * momentum_decay * log(0.96))))"}});
  return EmitFormula(g, text, {{"t", t}, {"log_product", log_product}}, attrs);
}

// With q = 0.96^momentum_decay the logarithm of 1 - 0.5 * q^i is -sum over k of 0.5^k / k * q^(i k), and for each k the
// sum over i is geometric. So the product needs no state. 50 terms are exact to a double's last digits.
Value LogOfProduct(GraphBuilder& g, Value t, const Attrs& attrs) {
  const double log_q = attrs.Float("momentum_decay") * std::log(0.96);
  if (log_q == 0) return EmitFormula(g, "t * log(0.5 * beta1)", {{"t", t}}, attrs);
  constexpr int kTerms = 50;
  double factors[kTerms], powers[kTerms];
  for (int k = 1; k <= kTerms; ++k) {
    factors[k - 1] = std::ldexp(1.0, -k) / k / std::expm1(-k * log_q);
    powers[k - 1] = k * log_q;
  }
  const auto literal = [&](const double* numbers) {
    return g.Literal({DType::kF64, {kTerms}}, std::string(reinterpret_cast<const char*>(numbers), sizeof factors));
  };
  const Value terms = EmitFormula(g, "factor * expm1(power * t)",
                                  {{"factor", literal(factors)}, {"power", literal(powers)}, {"t", t}}, attrs);
  return EmitFormula(g, "t * log(beta1) + sum", {{"t", t}, {"sum", ReduceSum(g, terms, {0}, false)}}, attrs);
}

}  // namespace

MSLUA_OPTIMIZER(nadam) {
  OptimizerDef def("nadam", "NAdam");
  def.Doc(
      "NAdam (Dozat, 2016), as PyTorch's: Adam with Nesterov's momentum, which grows from step to step. weight_decay "
      "is added to the gradient.");
  def.Params().Rate(2e-3);
  def.Number("beta1", 0.9, Fraction(), "the share of the mean of gradients that stays");
  def.Number("beta2", 0.999, Fraction(), "the share of the mean of their squares that stays");
  def.Number("eps", 1e-8, Above(0), "added to the root of the mean of squares");
  def.WeightDecay().LossScale();
  def.Number("momentum_decay", 4e-3, AtLeast(0), "how fast the momentum grows from beta1 / 2 to beta1; 0: not at all");
  def.Update(
         "apply_nadam",
         "NAdam (Dozat, 2016), as PyTorch's: g = grad + weight_decay * param; m and v as Adam's; mu(t) = beta1 * (1 "
         "- 0.5 * 0.96^(t * momentum_decay)); P = mu(1) * ... * mu(step); next = mu(step + 1); new_param = param - "
         "lr * ((1 - mu(step)) / (1 - P) * g + next / (1 - P * next) * m) / (sqrt(v / (1 - beta2^step)) + eps). "
         "step counts from 1; m and v start at 0.")
      .State("m", "moment1")
      .State("v", "moment2")
      .Scalars({"lr", "weight_decay", "step"})
      .Settings({"beta1", "beta2", "eps", "momentum_decay"})
      .Formula([](UpdateOperands& u) -> std::vector<Value> {
        GraphBuilder& g = u.g();
        const DType type = g.TypeOf(u.Get("step")).dtype;
        const Value t = Cast(g, u.Get("step"), DType::kF64), log_product = LogOfProduct(g, t, u.attrs());
        u.Set("of_grad", Cast(g, OfStep(g, "(1 - MU) / -expm1(log_product)", t, log_product, u.attrs()), type));
        u.Set("of_m", Cast(g, OfStep(g, "NEXT / (1 - exp(log_product) * NEXT)", t, log_product, u.attrs()), type));
        u.Let("correction", "1 / -expm1(step * log(beta2))");
        u.Let("grad", "grad + weight_decay * param");
        const Value m = u.Let("m", "beta1 * m + (1 - beta1) * grad");
        const Value v = u.Let("v", "beta2 * v + (1 - beta2) * grad * grad");
        u.Let("param", "param - lr * (of_grad * grad + of_m * m) / (sqrt(v * correction) + eps)");
        return u.Results({u.Get("param"), m, v});
      });
  return def;
}

}  // namespace mslua
