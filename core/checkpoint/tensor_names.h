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

// A parameter's name is its path from the root that is trained. Older versions wrote two other forms:
// - the first cell that was asked for its parameters named all of them, and names began there: `0.weight` for
//   `body.0.weight`, `0.bias` for `body.0.bias`;
// - a wrapper that was the root (nn.WithLossCell, nn.TrainOneStepCell, nn.PipelineCell) put its fields before all
//   names: `network.backbone.body.0.weight`.
// Gives, for the names of `wanted` that `stored` does not have, those of `stored` that have one of these forms. There
// is none for a name with several candidates, where a candidate is that of several names, and where other parameters
// of the cell, or of the wrapped network, have no such name. Names of optimizers' state follow their parameters', and
// stand for no parameter.
absl::flat_hash_map<std::string, std::string> OlderNames(const std::vector<std::string>& wanted,
                                                         const std::vector<std::string>& stored);

}  // namespace mslua::checkpoint
