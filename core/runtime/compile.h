// The order of the passes, and the graph after each of them on disk when asked for.
#pragma once

#include "core/graph/graph.h"
#include "core/runtime/executable.h"

namespace mslua {

// Runs every pass that `options` asks for, verifying the graph at both ends.
StatusOr<Graph> RunPasses(const Graph& graph, const CompileOptions& options);

// The graph in Graphviz's language.
std::string ToDot(const Graph& graph);

}  // namespace mslua
