#include "core/runtime/placed_graph.h"

#include "absl/strings/str_cat.h"

namespace mslua {

PlanReport ReportOf(const Graph& graph, const MemoryPlan& plan, int64_t kernels) {
  PlanReport report;
  report.nodes = static_cast<int64_t>(graph.nodes.size());
  report.kernels = kernels;
  report.workspace_bytes = plan.workspace_bytes;
  report.shared_bytes = plan.shared_bytes;
  report.sum_of_value_bytes = plan.sum_of_value_bytes;
  report.in_place = plan.in_place;
  report.copies = static_cast<int64_t>(plan.copies.size());
  for (int32_t i : graph.Inputs()) {
    const std::string& kind = graph.nodes[i].attrs.Str("kind");
    if (kind == kParameter || kind == kState) report.store_bytes += graph.nodes[i].outputs[0].bytes();
  }
  return report;
}

bool IsPassive(const Node& n) { return n.op->name == "input" || n.op->name == "constant" || n.op->view; }

std::vector<ArenaEntry> ArenaOf(const Graph& graph, const MemoryPlan& plan, const std::vector<int64_t>& scratch) {
  const auto count = static_cast<int64_t>(graph.nodes.size());
  std::vector<Value> root(count);  // of first outputs, the value whose memory it is
  std::vector<std::vector<int64_t>> last(count);
  const auto root_of = [&](Value v) { return v.output == 0 ? root[v.node] : v; };
  for (int64_t i = 0; i < count; ++i) {
    const Node& n = graph.nodes[i];
    root[i] = n.op->view ? root_of(n.inputs[0]) : Value{static_cast<int32_t>(i), 0};
    last[i].assign(n.outputs.size(), i);
    for (Value v : n.inputs) last[root_of(v).node][root_of(v).output] = i;
  }
  std::vector<ArenaEntry> arena;
  for (int64_t i = 0; i < count; ++i) {
    const Node& n = graph.nodes[i];
    for (int64_t o = 0; o < static_cast<int64_t>(n.outputs.size()) && !n.op->view; ++o) {
      const Placement& p = plan.values[i][o];
      if (p.kind == Placement::kArena) arena.push_back({i, o, p.offset, n.outputs[o].bytes(), i, last[i][o]});
    }
    if (plan.scratch[i] >= 0) arena.push_back({i, -1, plan.scratch[i], scratch[i], i, i});
  }
  return arena;
}

std::string WhereOf(const Node& n) {
  const std::string& what = n.location && !n.location->scope.empty() ? n.location->scope : n.op->name;
  if (!n.location || n.location->file.empty()) return what;
  return absl::StrCat(n.location->file, ":", n.location->line, ": ", what);
}

}  // namespace mslua
