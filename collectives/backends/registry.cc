#include "collectives/backends/registry.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace mslua {

// Generated from the folders beside this file.
std::vector<BackendDef> AllBackends();

const std::vector<BackendDef>& Backends() {
  static const auto* const backends = new std::vector<BackendDef>(AllBackends());
  return *backends;
}

StatusOr<const BackendDef*> FindBackend(absl::string_view name) {
  std::vector<std::string> names;
  for (const BackendDef& backend : Backends()) {
    if (backend.name == name) return &backend;
    names.push_back(backend.name);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("there is no backend '", name, "': expected one of ", absl::StrJoin(names, ", ")));
}

}  // namespace mslua
