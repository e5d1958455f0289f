// Every backend of this build, sorted by name. The list is generated from the folders beside this file.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "collectives/backends/define.h"

namespace mslua {

// The backend of a job that names none: of ranks that mpirun has started, and of others.
inline constexpr char kMpirunBackend[] = "mpi", kDefaultBackend[] = "native";

// Made on first use, immutable afterwards.
const std::vector<BackendDef>& Backends();
// InvalidArgument, with the names that there are, for another name.
StatusOr<const BackendDef*> FindBackend(absl::string_view name);

}  // namespace mslua
