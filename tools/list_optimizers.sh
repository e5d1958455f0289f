#!/bin/sh
# Prints the source of Optimizers(): one call for each file of core/optim, sorted by name.
set -eu
names=$(for f in "$@"; do basename "$f" .cc; done | LC_ALL=C sort)
cat <<'HEAD'
// Generated from the files of core/optim by tools/list_optimizers.sh.
#include <algorithm>

#include "core/optim/declare/registry.h"

namespace mslua {

HEAD
for n in $names; do echo "OptimizerDef Optimizer_$n();"; done
cat <<'MID'

const std::vector<OptimizerDef>& Optimizers() {
  static const auto* const all = new std::vector<OptimizerDef>(Linked({
MID
for n in $names; do echo "      Optimizer_$n(),"; done
cat <<'TAIL'
  }));
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
    auto* all = new std::vector<std::string>;
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
TAIL
