#include "core/optim/define.h"

namespace mslua {
namespace {

constexpr char kDoc[] =
    "RMSProp (Tieleman and Hinton, 2012), as MindSpore's: g = grad + weight_decay * param; square = decay * square + "
    "(1 - decay) * g^2; moment = momentum * moment + lr * g / sqrt(square + epsilon); new_param = param - moment. ";

}  // namespace

MSLUA_OPTIMIZER(rmsprop) {
  OptimizerDef def("rmsprop", "RMSProp");
  def.Doc(
      "RMSProp (Tieleman and Hinton, 2012, lecture 6.5): the gradient divided by the root of a running mean of its "
      "squares. As MindSpore's: epsilon is under the root, and momentum is of steps, with their learning rates.");
  def.Params().Rate(0.1);
  def.Number("decay", 0.9, Fraction(), "the share of the mean of squares that stays");
  def.Number("momentum", 0, AtLeast(0), "the share of the last step that stays");
  def.Number("epsilon", 1e-10, Above(0),
             "added to the mean of squares, under the root, where PyTorch adds its eps to the root");
  def.Bool("centered", false, "divide by the root of the variance: the mean of gradients is subtracted (Graves, 2013)");
  def.LossScale().WeightDecay();
  def.Update("apply_rmsprop_centered", std::string(kDoc) +
                                           "The root is that of square - mean^2 + epsilon, where mean = decay * mean + "
                                           "(1 - decay) * g. All state starts at 0.")
      .State("square", "mean_square")
      .State("moment", "moment")
      .State("mean", "mean_grad")
      .Scalars({"lr", "weight_decay"})
      .Settings({"decay", "momentum", "epsilon"})
      .Used([](const Attrs& s, const Shape&) { return s.Bool("centered"); })
      .Formula([](UpdateOperands& u) -> std::vector<Value> {
        u.Let("grad", "grad + weight_decay * param");
        const Value square = u.Let("square", "decay * square + (1 - decay) * grad * grad");
        const Value mean = u.Let("mean", "decay * mean + (1 - decay) * grad");
        // Rounding may make a variance of 0 negative.
        const Value moment =
            u.Let("moment", "momentum * moment + lr * grad / sqrt(max(square - mean * mean, 0) + epsilon)");
        return u.Results({u.Let("param", "param - moment"), square, moment, mean});
      });
  def.Update("apply_rmsprop", std::string(kDoc) + "All state starts at 0.")
      .State("square", "mean_square")
      .State("moment", "moment")
      .Scalars({"lr", "weight_decay"})
      .Settings({"decay", "momentum", "epsilon"})
      .Formula([](UpdateOperands& u) -> std::vector<Value> {
        u.Let("grad", "grad + weight_decay * param");
        const Value square = u.Let("square", "decay * square + (1 - decay) * grad * grad");
        const Value moment = u.Let("moment", "momentum * moment + lr * grad / sqrt(square + epsilon)");
        return u.Results({u.Let("param", "param - moment"), square, moment});
      });
  return def;
}

}  // namespace mslua
