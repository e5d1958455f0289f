#include "core/optim/define.h"

namespace mslua {

MSLUA_OPTIMIZER(momentum) {
  OptimizerDef def("momentum", "Momentum");
  def.Doc(
      "Gradient descent with momentum: v = momentum v + g + weight_decay w; w -= lr v, or lr (g + momentum v) with "
      "use_nesterov.");
  def.Params().Rate().Number("momentum", AtLeast(0), "the share of the last step's velocity that stays");
  def.WeightDecay().LossScale().Bool("use_nesterov", false, "the step looks one velocity ahead", "nesterov");
  def.Check([](const Attrs& s) -> Status {
    if (s.Bool("nesterov") && s.Float("momentum") == 0)
      return absl::InvalidArgumentError("use_nesterov needs a momentum above 0");
    return absl::OkStatus();
  });
  def.Update(
         "apply_momentum",
         "Gradient descent with momentum, as PyTorch's SGD without dampening and MindSpore's Momentum: g = grad + "
         "weight_decay * param; new_velocity = momentum * velocity + g; new_param = param - lr * new_velocity, or with "
         "nesterov (Sutskever et al., 2013) param - lr * (g + momentum * new_velocity). The velocity starts at 0.")
      .State({"velocity", "moments", "", false, {}})
      .Scalars({"lr", "momentum", "weight_decay"})
      .Settings({"nesterov"})
      .Formula([](UpdateOperands& u) -> std::vector<Value> {
        u.Let("grad", "grad + weight_decay * param");
        const Value velocity = u.Let("velocity", "momentum * velocity + grad");
        const bool nesterov = u.attrs().Bool("nesterov");
        return u.Results(
            {u.Let("param", nesterov ? "param - lr * (grad + momentum * velocity)" : "param - lr * velocity"),
             velocity});
      })
      .Sample({{"nesterov", true}});
  return def;
}

}  // namespace mslua
