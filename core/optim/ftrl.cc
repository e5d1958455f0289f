#include "core/optim/define.h"

namespace mslua {

MSLUA_OPTIMIZER(ftrl) {
  OptimizerDef def("ftrl", "FTRL");
  def.Doc(
      "FTRL-Proximal (McMahan et al., 2013, algorithm 1), as MindSpore's: the parameter that minimizes the sum of all "
      "gradients so far with the penalties l1 and l2. It is pulled towards 0, also from its first value. A learning "
      "rate of 0 changes nothing. Of a table of embeddings the rows that no index of a batch names stay as they are, "
      "and the time of a step does not depend on the table's height.");
  def.Params().Number("initial_accum", 0.1, AtLeast(0), "the first value of the sum of squares of gradients");
  def.Rate(1e-3).Number("lr_power", -0.5, AtMost(0), "the rate falls with this power of the sum of squares");
  def.Number("l1", 0, AtLeast(0), "the penalty on absolute values: small parameters become 0");
  def.Number("l2", 0, AtLeast(0), "the penalty on squares");
  def.LossScale().WeightDecay();
  def.Unnamed([](const Attrs&, double) { return UnnamedRows::kLeft; });
  def.Update("apply_ftrl",
             "FTRL-Proximal (McMahan et al., 2013): g = grad + weight_decay * param; new_sum = sum + g^2; new_linear = "
             "linear + g - (new_sum^-lr_power - sum^-lr_power) / lr * param; new_param = (sign(new_linear) * l1 - "
             "new_linear) / (new_sum^-lr_power / lr + 2 * l2) where abs(new_linear) is above l1, and 0 elsewhere. "
             "linear starts at 0. With lr = 0 nothing changes.")
      .State({"sum", "accum", "initial_accum", true, {}})
      .State("linear", "linear")
      .Scalars({"lr", "weight_decay"})
      .Settings({"lr_power", "l1", "l2"})
      .Formula([](UpdateOperands& u) -> std::vector<Value> {
        u.Let("grad", "grad + weight_decay * param");
        u.Let("new_sum", "sum + grad * grad");
        const bool root = u.attrs().Float("lr_power") == -0.5;
        u.Let("before", root ? "sqrt(sum)" : "pow(sum, -lr_power)");
        u.Let("after", root ? "sqrt(new_sum)" : "pow(new_sum, -lr_power)");
        u.Let("new_linear", "linear + grad - (after - before) / lr * param");
        u.Let("new_param",
              "select(gt(abs(new_linear), l1), (sign(new_linear) * l1 - new_linear) / (after / lr + 2 * l2), 0)");
        return u.Results({u.Let("param", "select(gt(lr, 0), new_param, param)"),
                          u.Let("sum", "select(gt(lr, 0), new_sum, sum)"),
                          u.Let("linear", "select(gt(lr, 0), new_linear, linear)")});
      })
      .Sample({{"lr_power", -0.25}, {"l1", 0.1}, {"l2", 0.01}});
  return def;
}

}  // namespace mslua
