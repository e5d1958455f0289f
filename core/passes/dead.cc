#include "core/passes/passes.h"
#include "core/passes/rewriter.h"

namespace mslua {

Graph EliminateDeadNodes(const Graph& graph) { return EliminateDeadNodes(graph, {}); }

Graph EliminateDeadNodes(const Graph& graph, const absl::flat_hash_set<int32_t>& unread) {
  std::vector<bool> live(graph.nodes.size(), false);
  for (const GraphOutput& o : graph.outputs) live[o.value.node] = true;
  for (int32_t i = static_cast<int32_t>(graph.nodes.size()) - 1; i >= 0; --i) {
    if (graph.nodes[i].op->side_effect && !unread.contains(i)) live[i] = true;
    if (!live[i]) continue;
    for (Value v : graph.nodes[i].inputs) live[v.node] = true;
  }
  Rewriter rewriter(graph);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (live[i]) rewriter.Copy(static_cast<int32_t>(i));
  }
  return rewriter.Finish();
}

}  // namespace mslua
