#include "collectives/siblings.h"

#include <algorithm>

#include "collectives/communicator.h"

namespace mslua {

void Siblings::Remove(const Communicator* group) {
  groups_.erase(std::remove(groups_.begin(), groups_.end(), group), groups_.end());
}

bool Siblings::Busy(const Communicator* waiting) const {
  return std::any_of(groups_.begin(), groups_.end(), [&](const Communicator* g) { return g != waiting && g->busy(); });
}

Status Siblings::Progress(const Communicator* waiting) {
  for (Communicator* const g : groups_) {
    if (g != waiting && g->busy()) RETURN_IF_ERROR(g->Progress());
  }
  return absl::OkStatus();
}

}  // namespace mslua
