#include "absl/strings/str_cat.h"
#include "core/optim/declare/adam_step.h"
#include "core/optim/define.h"

namespace mslua {
namespace {

constexpr char kDoc[] =
    "AdamW (Loshchilov and Hutter, 2019, algorithm 2), as PyTorch's: m = beta1 * m + (1 - beta1) * grad; v = beta2 * v "
    "+ (1 - beta2) * grad^2; new_param = param * (1 - lr * weight_decay) - lr * (m / (1 - beta1^step)) / (sqrt(w / (1 "
    "- beta2^step)) + eps). ";

std::vector<Value> Step(UpdateOperands& u, bool largest) {
  return AdamStep(u, {"grad", "m", "param * (1 - lr * weight_decay)"}, largest);
}

}  // namespace

MSLUA_OPTIMIZER(adamw) {
  OptimizerDef def("adamw", "AdamW");
  def.Doc(
      "AdamW (Loshchilov and Hutter, 2019), as PyTorch's: Adam's step with corrected moments, and a decay of the "
      "parameter that is no part of the gradient.");
  def.Params().Rate(1e-3);
  def.Number("beta1", 0.9, Fraction(), "the share of the mean of gradients that stays");
  def.Number("beta2", 0.999, Fraction(), "the share of the mean of their squares that stays");
  def.Number("eps", 1e-8, Above(0), "added to the root of the mean of squares");
  def.WeightDecay("lr times it times the parameter is subtracted from the parameter").LossScale();
  def.Bool("use_amsgrad", false, "divide by the root of the largest mean of squares so far (Reddi et al., 2018)");
  def.Update("apply_adamw_amsgrad", absl::StrCat(kDoc,
                                                 "w is the largest v so far (Reddi, Kale and Kumar, 2018). step "
                                                 "counts from 1; m, v and w start at 0."))
      .State("m", "moment1")
      .State("v", "moment2")
      .State("w", "max_moment2")
      .Scalars({"lr", "weight_decay", "step"})
      .Settings({"beta1", "beta2", "eps"})
      .Used([](const Attrs& s, const Shape&) { return s.Bool("use_amsgrad"); })
      .Formula([](UpdateOperands& u) { return Step(u, true); });
  def.Update("apply_adamw", absl::StrCat(kDoc, "w is v. step counts from 1; m and v start at 0."))
      .State("m", "moment1")
      .State("v", "moment2")
      .Scalars({"lr", "weight_decay", "step"})
      .Settings({"beta1", "beta2", "eps"})
      .Formula([](UpdateOperands& u) { return Step(u, false); });
  return def;
}

}  // namespace mslua
