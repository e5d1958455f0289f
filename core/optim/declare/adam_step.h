// The update that Adam and AdamW share.
#pragma once

#include <string>
#include <vector>

#include "core/optim/declare/operands.h"

namespace mslua {

// Where they differ: formulas of the operands.
struct AdamStepParts {
  std::string grad;       // what the moments take for the gradient
  std::string direction;  // of the step, before its corrections
  std::string param;      // from which the step is subtracted
};

// m = beta1 * m + (1 - beta1) * g; v = beta2 * v + (1 - beta2) * g^2; new_param = param - lr * (direction / (1 -
// beta1^step)) / (sqrt(v / (1 - beta2^step)) + eps). With `largest`, the state w, the largest v so far, is under the
// root in the place of v (Reddi, Kale and Kumar, 2018). Gives param, m, v and, with `largest`, w.
std::vector<Value> AdamStep(UpdateOperands& u, const AdamStepParts& parts, bool largest);

}  // namespace mslua
