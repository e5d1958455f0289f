// The operators of optimizers' updates, apply_*: each is declared in its optimizer's file, core/optim/*.cc.
#include "core/op/op_def.h"
#include "core/ops/define.h"
#include "core/optim/registry.h"

namespace mslua {

MSLUA_OPERATOR(apply_optimizer) {
  std::vector<OpDef> all;
  for (const OptimizerDef& def : Optimizers()) {
    for (OpDef& op : UpdateOperators(def)) all.push_back(std::move(op));
  }
  return all;
}

}  // namespace mslua
