#include "core/optim/registry.h"

#include <algorithm>

#include "core/optim/declare/update.h"

namespace mslua {

std::vector<OptimizerDef> AllOptimizers();  // generated

const std::vector<OptimizerDef>& Optimizers() {
  static const auto* const all = new std::vector<OptimizerDef>(Linked(AllOptimizers()));
  return *all;
}

const OptimizerDef* FindOptimizer(absl::string_view name) {
  for (const OptimizerDef& def : Optimizers()) {
    if (def.name == name) return &def;
  }
  return nullptr;
}

const std::vector<std::string>& OptimizerStateNames() {
  static const auto* const names = [] {
    auto* all = new std::vector<std::string>{kAverageState};
    for (const OptimizerDef& def : Optimizers()) {
      for (const UpdateDef& update : def.updates) {
        for (const StateDef& state : update.states) all->push_back(state.name);
      }
    }
    std::sort(all->begin(), all->end());
    all->erase(std::unique(all->begin(), all->end()), all->end());
    return all;
  }();
  return *names;
}

}  // namespace mslua
