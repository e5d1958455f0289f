#include "core/optim/define.h"

namespace mslua {

MSLUA_OPTIMIZER(lars) {
  OptimizerDef def("lars", "LARS");
  def.Doc(
      "LARS (You, Gitman and Ginsburg, 2017, algorithm 1) around another optimizer, as MindSpore's: the gradient of "
      "each parameter, with the other optimizer's weight decay, gets a length in proportion to the parameter's. "
      "Parameters that lars_filter leaves out keep their gradients and do not decay.");
  def.Wraps();
  def.Number("epsilon", 1e-5, Above(0), "added to the norm of the gradient");
  def.Number("coefficient", 0.001, Above(0),
             "the trust coefficient: the length of a step as a share of the parameter's");
  def.Bool("use_clip", false, "keep the scale of a gradient at most 1 / lr of it: min(scale / lr, 1)");
  def.Filter("lars_filter", {"LayerNorm", "bias"},
             "which parameters: a function of a parameter, a Lua pattern on names, or a list; nil: those without "
             "'LayerNorm' and 'bias' in their names");
  def.Update("apply_lars",
             "LARS (You et al., 2017): trust = coefficient * norm(param) / (norm(grad) + weight_decay * norm(param) + "
             "epsilon), and 1 when either norm is 0; with use_clip min(trust / lr, 1); new_grad = trust * (grad + "
             "weight_decay * param).")
      .Scalars({"lr", "weight_decay"})
      .Settings({"epsilon", "coefficient", "use_clip"})
      .Sums()
      .Formula([](UpdateOperands& u) -> std::vector<Value> {
        u.Set("param_norm", u.Sum(Mul(u.g(), u.Get("param"), u.Get("param"))));
        u.Set("grad_norm", u.Sum(Mul(u.g(), u.Get("grad"), u.Get("grad"))));
        u.Let("param_norm", "sqrt(param_norm)");
        u.Let("grad_norm", "sqrt(grad_norm)");
        u.Let("trust",
              "select(logical_and(gt(param_norm, 0), gt(grad_norm, 0)), coefficient * param_norm / (grad_norm + "
              "weight_decay * param_norm + epsilon), 1)");
        if (u.attrs().Bool("use_clip")) u.Let("trust", "min(trust / lr, 1)");
        return {u.Let("grad", "trust * (grad + weight_decay * param)")};
      })
      .Sample({{"use_clip", true}});
  return def;
}

}  // namespace mslua
