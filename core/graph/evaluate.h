// Runs a graph with the reference kernels, node by node: the yardstick of every other way to run it.
#pragma once

#include <string>
#include <vector>

#include "core/graph/graph.h"

namespace mslua {

// `inputs` are the bytes of the graph's inputs in the order of Graph::Inputs(). Gives the bytes of its outputs.
StatusOr<std::vector<std::string>> EvaluateReference(const Graph& graph, const std::vector<std::string>& inputs);

}  // namespace mslua
