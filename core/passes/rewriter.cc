#include "core/passes/rewriter.h"

#include <cstdio>
#include <cstdlib>

#include "core/graph/gradient_marks.h"

namespace mslua {

// A node that was made of a marked one has its attributes, and may be another value: only what stands for it counts.
void Rewriter::MoveGradientMarks() {
  for (Node& n : to_.graph().nodes) KeepGradientMarksInside(&n);
  for (size_t i = 0; i < from_.nodes.size(); ++i) {
    for (GradientMark& mark : GradientMarksOf(from_.nodes[i])) {
      const Value now = mark.inside ? Value() : Map({static_cast<int32_t>(i), mark.place});
      if (!now.valid()) continue;
      mark.place = now.output;
      MarkGradient(mark, &to_.graph().nodes[now.node]);
    }
  }
}

Graph Rewriter::Finish() {
  MoveGradientMarks();
  for (const GraphOutput& o : from_.outputs) to_.Output(o.name, Map(o.value), o.updates);
  auto graph = to_.Finish();
  if (!graph.ok()) {
    std::fprintf(stderr, "mslua: a pass broke the graph: %s\n", graph.status().ToString().c_str());
    std::abort();
  }
  return *std::move(graph);
}

}  // namespace mslua
