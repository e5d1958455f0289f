// The order of the passes, and the graph after each of them on disk when asked for.
#pragma once

#include <string>

#include "core/graph/graph.h"

namespace mslua {

class Decisions;

struct PassOptions {
  bool reference_kernels = false;  // plain C++ kernels only; no fusion: each node is its own
  bool optimize = true;            // CSE, algebra, fusion, layout; off: the graph as it is
  // 0 none, 1 the final graph, 2 after each pass, 3 also DOT: <path>/rank_<rank>/NN_<pass>.ir
  int save_graphs = 0;
  std::string save_graphs_path = ".";
  int rank = 0;
  // Which ways the passes take, and where they record them; null: the usual ones. Not owned, used while compiling.
  Decisions* decisions = nullptr;
};

// Runs every pass that `options` asks for. The graph is verified before the first one and after the last, and with
// MSLUA_VERIFY_PASSES=1 in the environment, as in tests, after each; an error names the pass.
StatusOr<Graph> RunPasses(const Graph& graph, const PassOptions& options);

// Writes a graph of a stage before the passes as <path>/rank_<rank>/00_<stage>.ir, where every pass is saved: as
// 01_traced.ir, 02_<pass>.ir, ... The dumps of a graph "<name>.eval" have a folder "eval".
Status SaveGraph(const Graph& graph, const std::string& stage, const PassOptions& options);

// The graph in Graphviz's language.
std::string ToDot(const Graph& graph);

}  // namespace mslua
