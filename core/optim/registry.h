// Every optimizer of this build, sorted by name. The list is generated from the files of core/optim.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "core/optim/declare/optimizer_def.h"

namespace mslua {

// Made on first use, immutable afterwards; defined in core/optim.
const std::vector<OptimizerDef>& Optimizers();
// Null when there is no such optimizer.
const OptimizerDef* FindOptimizer(absl::string_view name);
// The names of state tensors of all optimizers, averages too, sorted: what stands before the parameter's name in a
// checkpoint.
const std::vector<std::string>& OptimizerStateNames();

}  // namespace mslua
