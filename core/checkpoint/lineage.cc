#include "core/checkpoint/lineage.h"

#include <algorithm>

namespace mslua::checkpoint {

bool LeadsTo(const Lineage& lineage, int64_t step, const Lineage& to) {
  if (!to.run.empty() && lineage.run == to.run) return lineage.generation <= to.generation;
  return std::any_of(to.forks.begin(), to.forks.end(), [&](const Fork& fork) {
    if (fork.run != lineage.run) return false;
    return fork.run.empty() ? step <= fork.step : lineage.generation <= fork.generation;
  });
}

}  // namespace mslua::checkpoint
