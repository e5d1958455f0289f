#include "core/sharding/search/cost.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "absl/strings/str_cat.h"

namespace mslua {
namespace {

constexpr double kPicoseconds = 1e12;

int64_t Picoseconds(double seconds) { return std::llround(seconds * kPicoseconds); }

bool IsKind(const Node& n, absl::string_view kind) { return n.op->name == "input" && n.attrs.Str("kind") == kind; }

double Flops(const Graph& graph, const Node& n) {
  if (n.op->view || n.inputs.empty()) return 0;
  std::vector<TensorType> inputs;
  for (Value v : n.inputs) inputs.push_back(graph.TypeOf(v));
  if (n.op->flops) return n.op->flops(n.attrs, inputs, n.outputs);
  double elements = 0;
  for (const TensorType& t : n.outputs) elements += static_cast<double>(t.elements());
  return elements;
}

}  // namespace

CostModel::CostModel(const Graph& graph, const ForwardGraph& forward, const Cluster& cluster, Resharder& resharder)
    : graph_(graph),
      forward_(forward),
      cluster_(cluster),
      resharder_(resharder),
      move_bound_(resharder.mesh(), cluster.links),
      flops_(graph.nodes.size(), 0),
      gradients_wanted_(graph.nodes.size(), 0) {
  for (const ForwardGraph::Edge& e : forward.edges) gradients_wanted_[e.reader] += e.gradient;
  for (int32_t i : forward.nodes) {
    flops_[i] = Flops(graph, graph.nodes[i]);
    // A product has one more for each operand's gradient; of other operators all gradients take about one pass.
    if (!graph.nodes[i].op->flops) gradients_wanted_[i] = std::min(gradients_wanted_[i], 1);
  }
}

double CostModel::ForwardSeconds(int32_t node, double parts, double bytes) const {
  return std::max(flops_[node] / parts / RateOf(node), bytes / cluster_.bytes_per_second) + LaunchSeconds(node);
}

double CostModel::RateOf(int32_t node) const {
  const Node& n = graph_.nodes[node];
  return cluster_.flops_per_second.Of(n.inputs.empty() ? DType::kF32 : graph_.TypeOf(n.inputs[0]).dtype);
}

double CostModel::LaunchSeconds(int32_t node) const {
  const Node& n = graph_.nodes[node];
  return n.op->view || n.inputs.empty() ? 0 : cluster_.launch_seconds;
}

double CostModel::LocalBytes(int32_t node, const Sharding& sharding) const {
  const Node& n = graph_.nodes[node];
  const NodeRule& rule = forward_.rules[node];
  const Mesh& mesh = resharder_.mesh();
  if (n.op->view || n.inputs.empty()) return 0;
  double bytes = 0;
  const auto add = [&](const Layout& layout, const TensorType& type) {
    bytes += static_cast<double>(NumElements(layout.Local(mesh, type.shape)) * SizeOf(type.dtype));
  };
  for (size_t k = 0; k < n.inputs.size(); ++k) add(InputLayout(rule, sharding, k), graph_.TypeOf(n.inputs[k]));
  for (size_t o = 0; o < n.outputs.size(); ++o) add(OutputLayout(rule, sharding, o), n.outputs[o]);
  return bytes;
}

int64_t CostModel::Backward(int32_t node, const Sharding& sharding) const {
  double parts = 1;
  for (const AxisList& axes : sharding.factors) parts *= static_cast<double>(resharder_.mesh().Size(axes));
  return Picoseconds(gradients_wanted_[node] * ForwardSeconds(node, parts, LocalBytes(node, sharding)));
}

double CostModel::LocalOutputs(int32_t node, const Sharding& sharding) const {
  const Node& n = graph_.nodes[node];
  double bytes = 0;
  for (size_t o = 0; o < n.outputs.size() && !n.op->view && !forward_.remade[node]; ++o) {
    const Layout layout = OutputLayout(forward_.rules[node], sharding, o);
    bytes += static_cast<double>(NumElements(layout.Local(resharder_.mesh(), n.outputs[o].shape)) *
                                 SizeOf(n.outputs[o].dtype));
  }
  return bytes;
}

// An update reads the value, its gradient and the state, and writes value and state.
double CostModel::UpdateSeconds(double bytes) const {
  return (3 + 2 * forward_.states_per_parameter) * bytes / cluster_.bytes_per_second;
}

// Of a parameter that is sharded over all ranks, as far as it divides.
double CostModel::FinestBytes(int32_t parameter, const Sharding& sharding) const {
  const TensorType& type = graph_.nodes[parameter].outputs[0];
  const Layout layout = Finest(resharder_.mesh(), OutputLayout(forward_.rules[parameter], sharding, 0), type.shape);
  return static_cast<double>(NumElements(layout.Local(resharder_.mesh(), type.shape)) * SizeOf(type.dtype));
}

Cost CostModel::OfNode(int32_t node, const Sharding& sharding) const {
  double parts = 1, kept = LocalOutputs(node, sharding);
  for (const AxisList& axes : sharding.factors) parts *= static_cast<double>(resharder_.mesh().Size(axes));
  Cost cost;
  double seconds = ForwardSeconds(node, parts, LocalBytes(node, sharding)) * (1 + gradients_wanted_[node]);
  if (IsKind(graph_.nodes[node], kParameter) && forward_.training) {
    const double finest = forward_.shared[node] ? FinestBytes(node, sharding) : kept;
    seconds += UpdateSeconds(finest) + cluster_.launch_seconds;
    kept = (forward_.shares_parameters ? finest : kept) + (forward_.shares_gradients ? finest : kept) +
           forward_.states_per_parameter * finest;
  }
  cost.picoseconds = Picoseconds(seconds);
  cost.memory = static_cast<int64_t>(kept);
  return cost;
}

Cost CostModel::Share(int32_t node, const Sharding& sharding, int64_t others) const {
  double parts = static_cast<double>(others), kept = LocalOutputs(node, sharding) / static_cast<double>(others);
  for (const AxisList& axes : sharding.factors) parts *= static_cast<double>(resharder_.mesh().Size(axes));
  const double flops = flops_[node] / RateOf(node),
               traffic = LocalBytes(node, Sharding(forward_.rules[node])) / cluster_.bytes_per_second;
  // Either of the two is a product over groups of axes; their maximum is none.
  double seconds = flops >= traffic
                       ? flops / parts
                       : LocalBytes(node, sharding) / static_cast<double>(others) / cluster_.bytes_per_second;
  seconds = (seconds + LaunchSeconds(node)) * (1 + gradients_wanted_[node]);
  if (IsKind(graph_.nodes[node], kParameter) && forward_.training) {
    // What is sharded over all ranks has no share that would be right for every sharding.
    const bool shared = forward_.shared[node];
    seconds += shared ? 0 : UpdateSeconds(kept);
    kept *= shared ? !forward_.shares_parameters + !forward_.shares_gradients : 2 + forward_.states_per_parameter;
  }
  return {static_cast<int64_t>(seconds * kPicoseconds), 0, static_cast<int64_t>(kept)};
}

int64_t CostModel::NodeBound(int32_t node) const {
  const double ranks = static_cast<double>(resharder_.mesh().ranks());
  const Node& n = graph_.nodes[node];
  double bytes = 0;
  if (!n.op->view && !n.inputs.empty()) {
    for (Value v : n.inputs) bytes += static_cast<double>(graph_.TypeOf(v).bytes());
    for (const TensorType& t : n.outputs) bytes += static_cast<double>(t.bytes());
  }
  return static_cast<int64_t>((1 + gradients_wanted_[node]) * ForwardSeconds(node, ranks, bytes / ranks) *
                              kPicoseconds);
}

int64_t CostModel::HiddenBound(int32_t node) const {
  const int wanted = gradients_wanted_[node];
  return wanted * NodeBound(node) / (1 + wanted) + 1;
}

CostModel::Transfer CostModel::ForwardMove(const ForwardGraph::Edge& edge, const Sharding& maker,
                                           const Sharding& reader) const {
  return {OutputLayout(forward_.rules[edge.value.node], maker, static_cast<size_t>(edge.value.output)),
          InputLayout(forward_.rules[edge.reader], reader, edge.input)};
}

CostModel::Transfer CostModel::BackwardMove(const ForwardGraph::Edge& edge, const Sharding& maker,
                                            const Sharding& reader) const {
  return {
      GradientLayout(forward_.rules[edge.reader], reader, edge.input),
      OutputLayout(forward_.rules[edge.value.node], maker, static_cast<size_t>(edge.value.output)).WithoutPartial()};
}

StatusOr<Cost> CostModel::Exact(const Transfer& move, const TensorType& type) const {
  if (move.from == move.to) return Cost();
  ASSIGN_OR_RETURN(const ReshardPlan* plan, resharder_.Plan(move.from, move.to, type));
  return Cost{Picoseconds(plan->seconds), std::llround(plan->bytes_received), 0};
}

Cost CostModel::Bound(const Transfer& move, const TensorType& type) const {
  if (move.from == move.to) return Cost();
  const double whole = static_cast<double>(type.bytes());
  const MoveBound::Coefficients least = move_bound_.Of(move.from, move.to);
  const double seconds = least.Seconds(whole), bytes = least.bytes * whole;
  return {static_cast<int64_t>(seconds * kPicoseconds * (1 - 1e-9)), static_cast<int64_t>(bytes * (1 - 1e-9)), 0};
}

StatusOr<CostReport> Evaluate(const Graph& graph, const ForwardGraph& forward, const CostModel& model,
                              const std::vector<Sharding>& shardings) {
  CostReport report;
  for (int32_t i : forward.nodes) {
    const Cost cost = model.OfNode(i, shardings[i]);
    report.total += cost;
    report.compute_picoseconds += cost.picoseconds;
  }
  for (const ForwardGraph::Edge& e : forward.edges) {
    const Sharding &maker = shardings[e.value.node], &reader = shardings[e.reader];
    const TensorType& type = graph.TypeOf(e.value);
    ASSIGN_OR_RETURN(const Cost there, model.Exact(model.ForwardMove(e, maker, reader), type));
    Cost back;
    if (e.gradient) {
      ASSIGN_OR_RETURN(back, model.Exact(model.BackwardMove(e, maker, reader), type));
    }
    report.total.picoseconds += model.Joined(e, there.picoseconds, back.picoseconds, model.Backward(e.reader, reader));
    report.total.bytes += there.bytes + back.bytes;
  }
  return report;
}

}  // namespace mslua
