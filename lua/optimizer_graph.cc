#include "lua/optimizer_graph.h"

#include <cmath>

#include "absl/strings/str_cat.h"

namespace mslua {
namespace {

// 1 - beta^(step + 1), in f64: in f32 the first steps would lose half of their digits.
Value Correction(const OptimizerStep& s, double beta) {
  return EmitFormula(s.g, "1 - exp((t + 1) * log_beta)", {{"t", Cast(s.g, s.step, DType::kF64)}}, {{"log_beta", std::log(beta)}});
}

// sqrt(sum of squares), a scalar.
Value Norm(GraphBuilder& g, Value x) {
  std::vector<int64_t> axes;
  for (int64_t d = 0; d < g.TypeOf(x).rank(); ++d) axes.push_back(d);
  return g.Op("sqrt", {ReduceSum(g, Mul(g, x, x), axes, false)});
}

// Layerwise adaptation: You et al., "Large batch optimization for deep learning", 2020; bounds as in MindSpore's Lamb.
Value TrustRatio(GraphBuilder& g, Value p, Value update) {
  const Value wn = Norm(g, p), un = Norm(g, update);
  const Value zero = g.Constant(0, g.TypeOf(p).dtype), one = g.Constant(1, g.TypeOf(p).dtype);
  const Value some = g.Op("logical_and", {g.Op("greater", {wn, zero}), g.Op("greater", {un, zero})});
  // Where `some` is false the quotient is not used; its divisor is kept from being 0 all the same.
  const Value ratio = Div(g, wn, g.Op("select", {some, un, one}));
  return g.Op("select", {some, g.Op("minimum", {ratio, g.Constant(10, g.TypeOf(p).dtype)}), one});
}

}  // namespace

const std::vector<std::string>& OptimizerKinds() {
  static const auto* kinds = new std::vector<std::string>{"sgd", "momentum", "adam", "adam_weight_decay", "lamb"};
  return *kinds;
}

StatusOr<Update> EmitUpdate(const OptimizerStep& s, const OptimizerRule& rule, const ParameterData& parameter, Value p, Value grad) {
  GraphBuilder& g = s.g;
  const DType dtype = g.TypeOf(p).dtype;
  Value lr = Cast(g, s.lr(rule.lr_input), dtype);
  if (rule.lr_scale != 1) lr = Mul(g, lr, rule.lr_scale);
  const bool decoupled = rule.kind == "adam_weight_decay" || rule.kind == "lamb";
  if (rule.weight_decay != 0 && !decoupled) grad = EmitFormula(g, "dy + wd * p", {{"p", p}, {"dy", grad}}, {{"wd", rule.weight_decay}});
  Update update;
  if (rule.kind == "sgd" || rule.kind == "momentum") {
    if (rule.momentum == 0 && rule.kind == "sgd") {
      update.parameter = EmitFormula(g, "p - lr * dy", {{"p", p}, {"lr", lr}, {"dy", grad}});
      return update;
    }
    ASSIGN_OR_RETURN(const Value v, s.state("moments", parameter));
    Value part = grad;
    if (rule.dampening != 0) {
      // The first step is not dampened: its velocity is the gradient.
      const Value first = g.Op("equal", {s.step, g.Constant(0, DType::kI64)});
      part = Mul(g, grad, g.Op("select", {first, g.Constant(1, dtype), g.Constant(1 - rule.dampening, dtype)}));
    }
    const Value next = EmitFormula(g, "m * v + dy", {{"v", v}, {"dy", part}}, {{"m", rule.momentum}});
    update.parameter = rule.nesterov ? EmitFormula(g, "p - lr * (dy + m * v)", {{"p", p}, {"lr", lr}, {"v", next}, {"dy", grad}}, {{"m", rule.momentum}})
                                     : EmitFormula(g, "p - lr * v", {{"p", p}, {"lr", lr}, {"v", next}});
    update.states = {{"moments", next}};
    return update;
  }
  ASSIGN_OR_RETURN(const Value m, s.state("moment1", parameter));
  ASSIGN_OR_RETURN(const Value v, s.state("moment2", parameter));
  const Value next_m = EmitFormula(g, "b * m + c * dy", {{"m", m}, {"dy", grad}}, {{"b", rule.beta1}, {"c", 1 - rule.beta1}});
  const Value next_v = EmitFormula(g, "b * v + c * dy * dy", {{"v", v}, {"dy", grad}}, {{"b", rule.beta2}, {"c", 1 - rule.beta2}});
  update.states = {{"moment1", next_m}, {"moment2", next_v}};
  const Attrs eps = {{"eps", rule.eps}};
  if (rule.kind == "adam") {
    // Kingma and Ba 2015, section 2: the corrections folded into the rate.
    const Value correction = Div(g, g.Op("sqrt", {Correction(s, rule.beta2)}), Correction(s, rule.beta1));
    const Value rate = Mul(g, lr, Cast(g, correction, dtype));
    update.parameter = EmitFormula(g, "p - rate * m / (sqrt(v) + eps)", {{"p", p}, {"rate", rate}, {"m", next_m}, {"v", next_v}}, eps);
    return update;
  }
  Value direction;
  if (rule.kind == "adam_weight_decay") {
    // As MindSpore's AdamWeightDecay (and BERT's), without bias correction.
    direction = EmitFormula(g, "m / (sqrt(v) + eps)", {{"m", next_m}, {"v", next_v}}, eps);
  } else {
    const Value c1 = Cast(g, Correction(s, rule.beta1), dtype), c2 = Cast(g, Correction(s, rule.beta2), dtype);
    direction = EmitFormula(g, "m / c1 / (sqrt(v / c2) + eps)", {{"c1", c1}, {"c2", c2}, {"m", next_m}, {"v", next_v}}, eps);
  }
  if (rule.weight_decay != 0) direction = EmitFormula(g, "u + wd * p", {{"u", direction}, {"p", p}}, {{"wd", rule.weight_decay}});
  if (rule.kind == "lamb") direction = Mul(g, direction, TrustRatio(g, p, direction));
  update.parameter = EmitFormula(g, "p - lr * u", {{"p", p}, {"lr", lr}, {"u", direction}});
  return update;
}

}  // namespace mslua
