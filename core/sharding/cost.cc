#include "core/sharding/cost.h"

#include <algorithm>
#include <cmath>

namespace mslua {
namespace {

constexpr double kPicoseconds = 1e12;

int64_t Picoseconds(double seconds) { return std::llround(seconds * kPicoseconds); }

bool IsKind(const Node& n, absl::string_view kind) { return n.op->name == "input" && n.attrs.Str("kind") == kind; }

bool Contains(const FactorRule::Tensor& tensor, int f) {
  return std::any_of(tensor.begin(), tensor.end(),
                     [f](const FactorRule::Dim& dim) { return std::find(dim.begin(), dim.end(), f) != dim.end(); });
}

double Flops(const Graph& graph, const Node& n) {
  if (n.op->view || n.inputs.empty()) return 0;
  std::vector<TensorType> inputs;
  for (Value v : n.inputs) inputs.push_back(graph.TypeOf(v));
  if (n.op->flops) return n.op->flops(n.attrs, inputs, n.outputs);
  double elements = 0;
  for (const TensorType& t : n.outputs) elements += static_cast<double>(t.elements());
  return elements;
}

// Elements that a device has of both, in bytes: the least of some ranks. Any choice of ranks gives a true bound.
int64_t LeastOverlap(const Mesh& mesh, const Layout& a, const Layout& b, const Shape& shape) {
  const Shape sizes_a = a.Local(mesh, shape), sizes_b = b.Local(mesh, shape);
  int64_t least = NumElements(shape);
  const int64_t n = mesh.ranks(), step = std::max<int64_t>(1, n / 16);
  for (int64_t r = n - 1; r >= 0; r -= step) {
    const Shape begin_a = a.Begin(mesh, shape, mesh.first() + r), begin_b = b.Begin(mesh, shape, mesh.first() + r);
    int64_t overlap = 1;
    for (size_t d = 0; d < shape.size(); ++d) {
      const int64_t end = std::min(begin_a[d] + sizes_a[d], begin_b[d] + sizes_b[d]);
      overlap *= std::max<int64_t>(0, end - std::max(begin_a[d], begin_b[d]));
    }
    least = std::min(least, overlap);
  }
  return least;
}

LinkCosts::Link Fastest(const LinkCosts& links) {
  if (links.axes.empty()) return LinkCosts::Link();
  LinkCosts::Link fastest = links.axes[0];
  for (const LinkCosts::Link& l : links.axes) {
    fastest.alpha = std::min(fastest.alpha, l.alpha);
    fastest.beta = std::min(fastest.beta, l.beta);
  }
  return fastest;
}

double StatesPerParameter(const Graph& graph) {
  double state = 0, parameters = 0;
  for (const Node& n : graph.nodes) {
    if (IsKind(n, kParameter)) parameters += static_cast<double>(n.outputs[0].bytes());
    if (IsKind(n, kState)) state += static_cast<double>(n.outputs[0].bytes());
  }
  return parameters > 0 ? state / parameters : 0;
}

}  // namespace

StatusOr<ForwardGraph> ForwardOf(const Graph& graph) {
  const size_t count = graph.nodes.size();
  ForwardGraph out;
  out.rules.resize(count);
  out.data.assign(count, false);
  std::vector<bool> backward(count, false), reached(count, false), read(count, false);
  for (size_t i = 0; i < count; ++i) {
    const Node& n = graph.nodes[i];
    backward[i] = n.attrs.Has("_origin");
    out.training |= backward[i];
    out.data[i] = IsKind(n, kData) || IsKind(n, kScalar);
    reached[i] = IsKind(n, kParameter);
    for (Value v : n.inputs) {
      if (backward[v.node]) backward[i] = true;
      if (out.data[v.node]) out.data[i] = true;
      if (reached[v.node] && !n.op->zero_gradient && IsFloat(graph.TypeOf(v).dtype)) reached[i] = true;
    }
    if (backward[i]) continue;
    for (Value v : n.inputs) read[v.node] = true;
  }
  for (size_t i = 0; i < count; ++i) {
    const Node& n = graph.nodes[i];
    if (backward[i] || (n.inputs.empty() && !read[i])) continue;
    out.nodes.push_back(static_cast<int32_t>(i));
    ASSIGN_OR_RETURN(out.rules[i], RuleOf(graph, n));
    for (size_t k = 0; k < n.inputs.size(); ++k) {
      const Value v = n.inputs[k];
      const bool gradient = out.training && reached[v.node] && !n.op->zero_gradient && IsFloat(graph.TypeOf(v).dtype);
      out.edges.push_back({v, static_cast<int32_t>(i), k, gradient});
    }
  }
  out.states_per_parameter = StatesPerParameter(graph);
  return out;
}

double CostModel::ForwardSeconds(int32_t node, double parts, double bytes) const {
  return std::max(Flops(graph_, graph_.nodes[node]) / parts / cluster_.flops_per_second,
                  bytes / cluster_.bytes_per_second);
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

int CostModel::GradientsWanted(int32_t node) const {
  const auto first = std::lower_bound(forward_.edges.begin(), forward_.edges.end(), node,
                                      [](const ForwardGraph::Edge& e, int32_t n) { return e.reader < n; });
  int wanted = 0;
  for (auto e = first; e != forward_.edges.end() && e->reader == node; ++e) wanted += e->gradient;
  // A product has one more for each operand's gradient; of other operators all gradients take about one pass.
  return graph_.nodes[node].op->flops ? wanted : std::min(wanted, 1);
}

int64_t CostModel::Backward(int32_t node, const Sharding& sharding) const {
  double parts = 1;
  for (const AxisList& axes : sharding.factors) parts *= static_cast<double>(resharder_.mesh().Size(axes));
  return Picoseconds(GradientsWanted(node) * ForwardSeconds(node, parts, LocalBytes(node, sharding)));
}

Cost CostModel::OfNode(int32_t node, const Sharding& sharding) const {
  const Node& n = graph_.nodes[node];
  const NodeRule& rule = forward_.rules[node];
  const Mesh& mesh = resharder_.mesh();
  double parts = 1, kept = 0;
  for (const AxisList& axes : sharding.factors) parts *= static_cast<double>(mesh.Size(axes));
  for (size_t o = 0; o < n.outputs.size() && !n.op->view; ++o)
    kept += static_cast<double>(NumElements(OutputLayout(rule, sharding, o).Local(mesh, n.outputs[o].shape)) *
                                SizeOf(n.outputs[o].dtype));
  Cost cost;
  double seconds = ForwardSeconds(node, parts, LocalBytes(node, sharding));
  seconds *= 1 + GradientsWanted(node);
  if (IsKind(n, kParameter) && forward_.training) {
    // An update reads the value, its gradient and the state, and writes value and state.
    seconds += (3 + 2 * forward_.states_per_parameter) * kept / cluster_.bytes_per_second;
    kept *= 2 + forward_.states_per_parameter;
  }
  cost.picoseconds = Picoseconds(seconds);
  cost.memory = static_cast<int64_t>(kept);
  return cost;
}

int64_t CostModel::NodeBound(int32_t node) const {
  const double ranks = static_cast<double>(resharder_.mesh().ranks());
  const Node& n = graph_.nodes[node];
  double bytes = 0;
  if (!n.op->view && !n.inputs.empty()) {
    for (Value v : n.inputs) bytes += static_cast<double>(graph_.TypeOf(v).bytes());
    for (const TensorType& t : n.outputs) bytes += static_cast<double>(t.bytes());
  }
  return static_cast<int64_t>((1 + GradientsWanted(node)) * ForwardSeconds(node, ranks, bytes / ranks) * kPicoseconds);
}

CostModel::Transfer CostModel::ForwardMove(const ForwardGraph::Edge& edge, const Sharding& maker,
                                           const Sharding& reader) const {
  return {OutputLayout(forward_.rules[edge.value.node], maker, static_cast<size_t>(edge.value.output)),
          InputLayout(forward_.rules[edge.reader], reader, edge.input)};
}

CostModel::Transfer CostModel::BackwardMove(const ForwardGraph::Edge& edge, const Sharding& maker,
                                            const Sharding& reader) const {
  const NodeRule& rule = forward_.rules[edge.reader];
  // The gradient of an input is a sum over every factor that the input does not have.
  Layout made = InputLayout(rule, reader, edge.input);
  for (size_t f = 0; f < reader.factors.size(); ++f) {
    if (Contains(rule.rule.inputs[edge.input], static_cast<int>(f))) continue;
    for (int8_t a : reader.factors[f]) made.SetPartial(a, Reduction::kSum);
  }
  return {
      made,
      OutputLayout(forward_.rules[edge.value.node], maker, static_cast<size_t>(edge.value.output)).WithoutPartial()};
}

StatusOr<Cost> CostModel::Exact(const Transfer& move, const TensorType& type) const {
  if (move.from == move.to) return Cost();
  ASSIGN_OR_RETURN(const ReshardPlan* plan, resharder_.Plan(move.from, move.to, type));
  return Cost{Picoseconds(plan->seconds), std::llround(plan->bytes_received), 0};
}

Cost CostModel::Bound(const Transfer& move, const TensorType& type) const {
  if (move.from == move.to) return Cost();
  const Mesh& mesh = resharder_.mesh();
  const double size = static_cast<double>(SizeOf(type.dtype));
  const double have = static_cast<double>(NumElements(move.from.Local(mesh, type.shape))) * size,
               want = static_cast<double>(NumElements(move.to.Local(mesh, type.shape))) * size;
  const LinkCosts::Link link = Fastest(cluster_.links);
  double bytes = want, rounds = 0;
  if (move.from.partial()) {
    // Each element that is wanted takes others' share of its sum; copies of a part may help each other, so no more.
    rounds = 1 + std::log2(static_cast<double>(mesh.Size(move.from.Partial())));
  } else {
    bytes -= static_cast<double>(LeastOverlap(mesh, move.from, move.to, type.shape)) * size;
    if (bytes == 0) return {static_cast<int64_t>(cluster_.links.copy_beta * want * kPicoseconds), 0, 0};
    rounds = 1 + std::log2(1 + std::ceil(bytes / have));
  }
  return {static_cast<int64_t>((link.alpha * rounds + link.beta * bytes) * kPicoseconds * (1 - 1e-9)),
          static_cast<int64_t>(bytes), 0};
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
