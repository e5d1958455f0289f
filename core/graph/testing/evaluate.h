// Runs a graph with the reference kernels, node by node: what tests compare every other way to run it with.
#pragma once

#include <string>
#include <vector>

#include "core/graph/graph.h"

namespace mslua {

// `inputs` are the bytes of the graph's inputs in the order of Graph::Inputs(), dense and row-major. Gives the bytes of
// its outputs. InvalidArgument: an input is missing or has another size. Internal: an operator has no reference kernel.
StatusOr<std::vector<std::string>> EvaluateReference(const Graph& graph, const std::vector<std::string>& inputs);

}  // namespace mslua
