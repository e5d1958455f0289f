#include "core/passes/rewriter.h"

#include <cstdio>
#include <cstdlib>

#include "core/graph/gradient_marks.h"

namespace mslua {

Graph Rewriter::Finish() {
  MoveGradientMarks(from_, &to_.graph(), [this](Value old) { return Map(old); });
  for (const GraphOutput& o : from_.outputs) to_.Output(o.name, Map(o.value), o.updates);
  auto graph = to_.Finish();
  if (!graph.ok()) {
    std::fprintf(stderr, "mslua: a pass broke the graph: %s\n", graph.status().ToString().c_str());
    std::abort();
  }
  return *std::move(graph);
}

}  // namespace mslua
