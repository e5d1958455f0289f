#include "core/optim/define.h"

namespace mslua {
namespace {

// PyTorch's and MindSpore's: decay comes first, and the first step is not dampened; without momentum none is.
absl::optional<ChangedGradient> Dampened(const GradientCall& c) {
  const double dampening = c.settings.Float("dampening");
  if (dampening == 0 || c.settings.Float("momentum") == 0) return absl::nullopt;
  GraphBuilder& g = c.g;
  const DType dtype = ArithmeticType(g.TypeOf(c.parameter).dtype);
  Value grad = Cast(g, c.gradient, dtype);
  if (c.weight_decay != 0) {
    grad = EmitFormula(g, "dy + wd * p", {{"p", Cast(g, c.parameter, dtype)}, {"dy", grad}}, {{"wd", c.weight_decay}});
  }
  const Value decay = g.Constant(0, dtype);
  const Value first = g.Op("equal", {c.updates(), g.Constant(0, DType::kI64)});
  const Value one = g.Constant(1, dtype), rest = g.Constant(1 - dampening, dtype);
  return ChangedGradient{Mul(g, grad, g.Op("select", {first, one, rest})), decay};
}

}  // namespace

MSLUA_OPTIMIZER(sgd) {
  OptimizerDef def("sgd", "SGD");
  def.Doc(
      "Stochastic gradient descent: w -= lr (dampened momentum of g + weight_decay w). Without momentum and weight "
      "decay a table of embeddings is updated by the rows that a batch names: the time does not depend on its height.");
  def.Params().Rate(0.1);
  def.Number("momentum", 0, AtLeast(0), "the share of the last step's velocity that stays");
  def.Number("dampening", 0, Between(0, 1), "the share of the gradient that the velocity does not take, after step 1");
  def.WeightDecay().Bool("nesterov", false, "the step looks one velocity ahead").LossScale();
  def.Check([](const Attrs& s) -> Status {
    if (s.Bool("nesterov") && (s.Float("momentum") == 0 || s.Float("dampening") != 0))
      return absl::InvalidArgumentError("nesterov needs a momentum and no dampening");
    return absl::OkStatus();
  });
  def.Gradient(Dampened);
  def.Unnamed([](const Attrs& s, double weight_decay) {
    return s.Float("momentum") == 0 && weight_decay == 0 ? UnnamedRows::kSame : UnnamedRows::kUpdated;
  });
  def.Update("apply_sgd", "Gradient descent: new_param = param - lr * (grad + weight_decay * param).")
      .Scalars({"lr", "weight_decay"})
      .Used([](const Attrs& s, const Shape&) { return s.Float("momentum") == 0; })
      .Formula([](UpdateOperands& u) {
        return u.Results({u.Let("new_param", "param - lr * (grad + weight_decay * param)")});
      });
  def.UpdateOf("momentum");
  return def;
}

}  // namespace mslua
