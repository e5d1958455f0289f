#include "collectives/backends/registry.h"

#include <algorithm>

#include "absl/strings/str_join.h"
#include "cli/verbs.h"

namespace mslua::cli {

// Generated from the files of this folder.
std::vector<VerbDef> AllVerbs();

const std::vector<VerbDef>& Verbs() {
  static const auto* const verbs = [] {
    auto* all = new std::vector<VerbDef>(AllVerbs());
    std::stable_sort(all->begin(), all->end(), [](const VerbDef& a, const VerbDef& b) { return a.place < b.place; });
    return all;
  }();
  return *verbs;
}

// For --backend (cli/common_flags.cc).
std::string BackendChoices() {
  return absl::StrJoin(Backends(), "|", [](std::string* out, const BackendDef& backend) { out->append(backend.name); });
}

}  // namespace mslua::cli
