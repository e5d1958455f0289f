#include "absl/strings/str_cat.h"
#include "core/optim/declare/adam_step.h"
#include "core/optim/define.h"

namespace mslua {
namespace {

constexpr char kDoc[] =
    "Adam (Kingma and Ba, 2015, algorithm 1): g = grad + weight_decay * param; m = beta1 * m + (1 - beta1) * g; v = "
    "beta2 * v + (1 - beta2) * g^2; new_param = param - lr * (d / (1 - beta1^step)) / (sqrt(w / (1 - beta2^step)) + "
    "eps). d is m, and beta1 * m + (1 - beta1) * g with use_nesterov. ";

std::vector<Value> Step(UpdateOperands& u, bool largest) {
  const char* const direction = u.attrs().Bool("use_nesterov") ? "beta1 * m + (1 - beta1) * grad" : "m";
  return AdamStep(u, {"grad + weight_decay * param", direction, "param"}, largest);
}

}  // namespace

MSLUA_OPTIMIZER(adam) {
  OptimizerDef def("adam", "Adam");
  def.Doc(
      "Adam (Kingma and Ba, 2015): steps scaled by running means of gradients and their squares. weight_decay is added "
      "to the gradient.");
  def.Params().Rate(1e-3);
  def.Number("beta1", 0.9, Fraction(), "the share of the mean of gradients that stays");
  def.Number("beta2", 0.999, Fraction(), "the share of the mean of their squares that stays");
  def.Number("eps", 1e-8, Above(0), "added to the root of the mean of squares");
  def.WeightDecay().LossScale();
  def.Bool("use_nesterov", false, "step along the mean of gradients that one more equal gradient would give");
  def.Bool("use_amsgrad", false, "divide by the root of the largest mean of squares so far (Reddi et al., 2018)");
  def.Update("apply_adam_amsgrad", absl::StrCat(kDoc,
                                                "w is the largest v so far (Reddi, Kale and Kumar, 2018). step "
                                                "counts from 1; m, v and w start at 0."))
      .State("m", "moment1")
      .State("v", "moment2")
      .State("w", "max_moment2")
      .Scalars({"lr", "weight_decay", "step"})
      .Settings({"beta1", "beta2", "eps", "use_nesterov"})
      .Used([](const Attrs& s, const Shape&) { return s.Bool("use_amsgrad"); })
      .Formula([](UpdateOperands& u) { return Step(u, true); })
      .Sample({{"use_nesterov", true}});
  def.Update("apply_adam", absl::StrCat(kDoc, "w is v. step counts from 1; m and v start at 0."))
      .State("m", "moment1")
      .State("v", "moment2")
      .Scalars({"lr", "weight_decay", "step"})
      .Settings({"beta1", "beta2", "eps", "use_nesterov"})
      .Formula([](UpdateOperands& u) { return Step(u, false); })
      .Sample({{"use_nesterov", true}});
  return def;
}

}  // namespace mslua
