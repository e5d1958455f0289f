// The names of tensors in checkpoints: which are an optimizer's state, and what older versions called a parameter.
#pragma once

#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/string_view.h"

namespace mslua::checkpoint {

// The parameter that the tensor `name` is an optimizer's state of, when `names` has that parameter; else empty. The
// state that an optimizer keeps for the parameter `fc.weight` is `moments.fc.weight`: OptimizerStateNames() of
// core/optim/registry.h.
absl::string_view StateOf(absl::string_view name, const absl::flat_hash_set<absl::string_view>& names);

// A parameter's name is its path from the root that is trained. Before, the first cell that was asked for it decided,
// and names began there: `0.weight` or `backbone.body.0.weight` for `body.0.weight`. Gives, for each of `wanted` that
// `stored` does not have, the one name of `stored` that is its end or that it is the end of, where neither has another
// candidate; the names of optimizers' state follow their parameters'.
absl::flat_hash_map<std::string, std::string> OlderNames(const std::vector<std::string>& wanted,
                                                         const std::vector<std::string>& stored);

}  // namespace mslua::checkpoint
