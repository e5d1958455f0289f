#include "core/optim/declare/adam_step.h"

#include "absl/strings/str_cat.h"

namespace mslua {

std::vector<Value> AdamStep(UpdateOperands& u, const AdamStepParts& parts, bool largest) {
  // 1 - beta^step, which loses digits when it is computed as written.
  u.Let("rate", "lr / -expm1(step * log(beta1))");
  u.Let("correction", "1 / -expm1(step * log(beta2))");
  u.Let("grad", parts.grad);
  u.Let("m", "beta1 * m + (1 - beta1) * grad");
  u.Let("v", "beta2 * v + (1 - beta2) * grad * grad");
  u.Let("d", parts.direction);
  if (largest) u.Let("w", "max(w, v)");
  u.Let("param", absl::StrCat(parts.param, " - rate * d / (sqrt(", largest ? "w" : "v", " * correction) + eps)"));
  std::vector<Value> results = {u.Get("param"), u.Get("m"), u.Get("v")};
  if (largest) results.push_back(u.Get("w"));
  return u.Results(results);
}

}  // namespace mslua
