#include "core/sharding/search/plan_report.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/op/marks.h"
#include "core/sharding/micro_batches.h"

namespace mslua {
namespace {

bool IsStored(const Node& n) {
  if (n.op->name != "input") return false;
  const std::string& kind = n.attrs.Str("kind");
  return kind == kParameter || kind == kState;
}

// The steps between layouts of an operator's inputs and of their gradients.
class Moves {
 public:
  Moves(const CostModel& model, const ShardPlan& plan, const Graph& graph, Resharder& resharder)
      : model_(model), plan_(plan), graph_(graph), resharder_(resharder) {}

  Status Add(const ForwardGraph::Edge& e) {
    const Sharding &maker = plan_.shardings[e.value.node], &reader = plan_.shardings[e.reader];
    RETURN_IF_ERROR(AddPlan(model_.ForwardMove(e, maker, reader), graph_.TypeOf(e.value)));
    if (!e.gradient) return absl::OkStatus();
    return AddPlan(model_.BackwardMove(e, maker, reader), graph_.TypeOf(e.value));
  }
  std::string Names() const { return absl::StrJoin(names_, ", "); }
  int64_t bytes() const { return static_cast<int64_t>(std::llround(bytes_)); }

 private:
  Status AddPlan(const CostModel::Transfer& move, const TensorType& type) {
    if (move.from == move.to) return absl::OkStatus();
    ASSIGN_OR_RETURN(const ReshardPlan* plan, resharder_.Plan(move.from, move.to, type));
    bytes_ += plan->bytes_received;
    for (const ReshardStep& step : plan->steps) {
      const std::string name = Name(step.kind);
      if (step.kind != Move::kSlice && std::find(names_.begin(), names_.end(), name) == names_.end())
        names_.push_back(name);
    }
    return absl::OkStatus();
  }

  const CostModel& model_;
  const ShardPlan& plan_;
  const Graph& graph_;
  Resharder& resharder_;
  std::vector<std::string> names_;
  double bytes_ = 0;
};

}  // namespace

std::string PlaceOf(const Node& node) {
  const std::string& name = node.op->class_name.empty() ? node.op->name : node.op->class_name;
  if (!node.location) return name;
  const Location& at = *node.location;
  return absl::StrCat(at.scope, at.scope.empty() ? "" : "/", name, at.line > 0 ? absl::StrCat(":", at.line) : "");
}

StatusOr<ShardReport> ReportOf(const Graph& graph, const ShardPlan& plan, const PropagateOptions& options,
                               const Cluster& cluster, Resharder& resharder) {
  ASSIGN_OR_RETURN(const ForwardGraph forward, ForwardOf(graph, options.optimizer_shards));
  const CostModel model(graph, forward, cluster, resharder);
  ASSIGN_OR_RETURN(const CostReport cost, Evaluate(graph, forward, model, plan.shardings));
  ShardReport report;
  report.seconds = static_cast<double>(cost.total.picoseconds) * 1e-12;
  report.compute_seconds = static_cast<double>(cost.compute_picoseconds) * 1e-12;
  report.bytes = cost.total.bytes;
  const auto first = FirstMicroBatchOf(graph);
  auto edge = forward.edges.begin();
  for (int32_t i : forward.nodes) {
    const Node& n = graph.nodes[i];
    Moves moves(model, plan, graph, resharder);
    for (; edge != forward.edges.end() && edge->reader == i; ++edge) RETURN_IF_ERROR(moves.Add(*edge));
    // The other micro-batches are as the first, and their values take the place of its own.
    if (first && mark::kMicroBatch.GetOr(n.attrs, 0) > 0) continue;
    const Cost own = model.OfNode(i, plan.shardings[i]);
    report.memory += own.memory;
    if (n.inputs.empty()) continue;
    report.operators.push_back({i, PlaceOf(n), ToString(StrategyOf(resharder.mesh(), plan.rules[i], plan.shardings[i])),
                                plan.Output({i, 0}).ToString(), moves.Names(), moves.bytes(), own.memory,
                                static_cast<double>(own.picoseconds) * 1e-12, n.op->flops != nullptr});
  }
  for (int32_t i : graph.Inputs()) {
    const Node& n = graph.nodes[i];
    if (!IsStored(n)) continue;
    const Layout layout = plan.Output({i, 0});
    report.parameters.push_back(
        {n.attrs.Str("name"), ToString(n.outputs[0]), layout.ToString(),
         NumElements(layout.Local(resharder.mesh(), n.outputs[0].shape)) * SizeOf(n.outputs[0].dtype)});
  }
  return report;
}

StatusOr<std::vector<Alternative>> AlternativesOf(const Graph& graph, const Mesh& mesh, int32_t node,
                                                  const std::function<StatusOr<Prediction>(const Graph&)>& predict) {
  ASSIGN_OR_RETURN(const NodeRule rule, RuleOf(graph, graph.nodes[node]));
  std::set<std::string> strategies;
  for (const Sharding& s : Candidates(mesh, rule)) strategies.insert(ToString(StrategyOf(mesh, rule, s)));
  // Of all micro-batches.
  std::vector<int32_t> alike = {node};
  const auto first = FirstMicroBatchOf(graph);
  for (int32_t i = 0; first && i < static_cast<int32_t>(graph.nodes.size()); ++i) {
    if (i != node && first->of[i] >= 0 && first->of[i] == first->of[node]) alike.push_back(i);
  }
  std::vector<Alternative> all;
  Graph other = graph;
  for (const std::string& strategy : strategies) {
    for (int32_t i : alike) mark::kUserStrategy.Set(other.nodes[i].attrs, strategy);
    const auto predicted = predict(other);
    if (absl::IsResourceExhausted(predicted.status())) {
      all.push_back({strategy, 0, 0, false});
      continue;
    }
    RETURN_IF_ERROR(predicted.status());
    all.push_back({strategy, predicted->seconds, predicted->memory, true});
  }
  std::stable_sort(all.begin(), all.end(), [](const Alternative& a, const Alternative& b) {
    return a.fits != b.fits ? a.fits : a.seconds < b.seconds;
  });
  return all;
}

}  // namespace mslua
