// The order of the passes, and the graph after each of them on disk when asked for.
#pragma once

#include "core/graph/graph.h"
#include "core/runtime/executable.h"

namespace mslua {

// Runs every pass that `options` asks for, verifying the graph at both ends.
StatusOr<Graph> RunPasses(const Graph& graph, const CompileOptions& options);

// Writes a graph of a stage before the passes as <path>/rank_<rank>/00_<stage>.ir, where every pass is saved: as
// 01_traced.ir, 02_<pass>.ir, ... The dumps of a graph "<name>.eval" have a folder "eval".
Status SaveGraph(const Graph& graph, const std::string& stage, const CompileOptions& options);

// The graph in Graphviz's language.
std::string ToDot(const Graph& graph);

}  // namespace mslua
