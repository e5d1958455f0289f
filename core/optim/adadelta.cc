#include "core/optim/define.h"

namespace mslua {

MSLUA_OPTIMIZER(adadelta) {
  OptimizerDef def("adadelta", "Adadelta");
  def.Doc(
      "Adadelta (Zeiler, 2012): the gradient times the ratio of two roots of running means, of the squares of earlier "
      "steps and of the squares of gradients. weight_decay is added to the gradient.");
  def.Params().Rate(1);
  def.Number("rho", 0.9, Fraction(), "the share of both means that stays");
  def.Number("epsilon", 1e-6, Above(0), "added to both means, under the roots");
  def.LossScale().WeightDecay();
  def.Update("apply_adadelta",
             "Adadelta (Zeiler, 2012, algorithm 1): g = grad + weight_decay * param; square = rho * square + (1 - rho) "
             "* g^2; d = sqrt(step_square + epsilon) / sqrt(square + epsilon) * g; new_step_square = rho * step_square "
             "+ (1 - rho) * d^2; new_param = param - lr * d. All state starts at 0.")
      .State("square", "mean_square")
      .State("step_square", "mean_square_step")
      .Scalars({"lr", "weight_decay"})
      .Settings({"rho", "epsilon"})
      .Formula([](UpdateOperands& u) -> std::vector<Value> {
        u.Let("grad", "grad + weight_decay * param");
        const Value square = u.Let("square", "rho * square + (1 - rho) * grad * grad");
        u.Let("d", "sqrt(step_square + epsilon) / sqrt(square + epsilon) * grad");
        const Value step_square = u.Let("step_square", "rho * step_square + (1 - rho) * d * d");
        return u.Results({u.Let("param", "param - lr * d"), square, step_square});
      });
  return def;
}

}  // namespace mslua
