#include "core/sharding/forward_graph.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "core/op/marks.h"
#include "core/sharding/micro_batches.h"

namespace mslua {
namespace {

bool IsKind(const Node& n, absl::string_view kind) { return n.op->name == "input" && n.attrs.Str("kind") == kind; }

double StatesPerParameter(const Graph& graph) {
  double state = 0, parameters = 0;
  for (const Node& n : graph.nodes) {
    if (IsKind(n, kParameter)) parameters += static_cast<double>(n.outputs[0].bytes());
    if (IsKind(n, kState)) state += static_cast<double>(n.outputs[0].bytes());
  }
  return parameters > 0 ? state / parameters : 0;
}

// What makes two nodes cost the same under the same sharding.
std::string KindOf(const Graph& graph, const ForwardGraph& forward, int32_t i) {
  const Node& n = graph.nodes[i];
  std::string kind = n.op->name;
  for (const auto& [name, value] : n.attrs.items()) {
    if (name != "name" && name != mark::kRng.name && name != mark::kMicroBatch.name)
      absl::StrAppend(&kind, " ", name, "=", AttrText(value));
  }
  for (Value v : n.inputs) absl::StrAppend(&kind, " ", ToString(graph.TypeOf(v)));
  absl::StrAppend(&kind, " ->");
  for (const TensorType& t : n.outputs) absl::StrAppend(&kind, " ", ToString(t));
  absl::StrAppend(&kind, forward.data[i] ? " data" : "", forward.remade[i] ? " remade" : "",
                  forward.shared[i] ? " shared" : "");
  return kind;
}

void NumberKinds(const Graph& graph, ForwardGraph* forward) {
  absl::flat_hash_map<std::string, int> known;
  auto edge = forward->edges.begin();
  for (int32_t i : forward->nodes) {
    std::string kind = KindOf(graph, *forward, i);
    for (; edge != forward->edges.end() && edge->reader == i; ++edge) {
      if (edge->gradient) absl::StrAppend(&kind, " d", edge->input);
    }
    forward->kinds.push_back(known.emplace(std::move(kind), static_cast<int>(known.size())).first->second);
  }
}

void JoinEdges(size_t nodes, ForwardGraph* forward) {
  std::vector<int> position(nodes, -1);
  for (size_t p = 0; p < forward->nodes.size(); ++p) position[forward->nodes[p]] = static_cast<int>(p);
  size_t first = 0;  // tie of the reader at hand
  for (int e = 0; e < static_cast<int>(forward->edges.size()); ++e) {
    const int maker = position[forward->edges[e].value.node], reader = position[forward->edges[e].reader];
    while (first < forward->ties.size() && forward->ties[first].reader != reader) ++first;
    const auto tie = std::find_if(forward->ties.begin() + first, forward->ties.end(),
                                  [&](const ForwardGraph::Tie& t) { return t.maker == maker; });
    if (tie != forward->ties.end())
      tie->edges.push_back(e);
    else
      forward->ties.push_back({maker, reader, {e}, 0});
  }
  std::map<std::vector<int>, int> known;
  for (ForwardGraph::Tie& t : forward->ties) {
    std::vector<int> key{forward->kinds[t.maker], forward->kinds[t.reader]};
    for (int e : t.edges) {
      key.push_back(forward->edges[e].value.output);
      key.push_back(static_cast<int>(forward->edges[e].input));
      key.push_back(forward->edges[e].gradient);
    }
    t.kind = known.emplace(std::move(key), static_cast<int>(known.size())).first->second;
  }
}

// By node: whether a forward node reads it. What parameters, state and constants make for updates alone is none.
std::vector<bool> ReadForward(const Graph& graph, std::vector<bool>* backward) {
  const size_t count = graph.nodes.size();
  std::vector<bool> from_data(count, false), has_reader(count, false), read(count, false);
  for (size_t i = 0; i < count; ++i) {
    from_data[i] = IsKind(graph.nodes[i], kData);
    for (Value v : graph.nodes[i].inputs) {
      from_data[i] = from_data[i] || from_data[v.node];
      has_reader[v.node] = true;
    }
  }
  for (size_t i = count; i-- > 0;) {
    const Node& n = graph.nodes[i];
    if (!n.inputs.empty() && !from_data[i] && has_reader[i] && !read[i]) (*backward)[i] = true;
    for (Value v : n.inputs) read[v.node] = read[v.node] || !(*backward)[i];
  }
  return read;
}

// What a recomputation region makes is kept where something outside reads it.
void FindRemade(const Graph& graph, ForwardGraph* forward) {
  forward->remade.assign(graph.nodes.size(), false);
  for (int32_t i : forward->nodes) forward->remade[i] = graph.nodes[i].region != 0 && !graph.nodes[i].inputs.empty();
  for (const ForwardGraph::Edge& e : forward->edges) {
    if (graph.nodes[e.reader].region != graph.nodes[e.value.node].region) forward->remade[e.value.node] = false;
  }
  for (const GraphOutput& o : graph.outputs) forward->remade[o.value.node] = false;
}

void FindShared(const Graph& graph, const PropagateOptions::OptimizerShards& shards, ForwardGraph* forward) {
  for (int32_t i : forward->nodes) {
    const Node& n = graph.nodes[i];
    forward->shared[i] =
        IsKind(n, kParameter) && n.outputs[0].bytes() >= shards.bytes && !shards.except.contains(n.attrs.Str("name"));
  }
  forward->shares_gradients = shards.sums || shards.parameters;
  forward->shares_parameters = shards.parameters;
}

}  // namespace

StatusOr<ForwardGraph> ForwardOf(const Graph& graph, const absl::optional<PropagateOptions::OptimizerShards>& shards) {
  const size_t count = graph.nodes.size();
  ForwardGraph out;
  out.rules.resize(count);
  out.data.assign(count, false);
  std::vector<bool> backward(count, false), reached(count, false), custom(count, false);
  for (const Node& n : graph.nodes) {
    // A node without a gradient that is an origin is a result whose gradient a user gives.
    const int64_t* origin = mark::kOrigin.Find(n.attrs);
    if (origin != nullptr && graph.nodes[*origin].op->zero_gradient) custom[*origin] = true;
  }
  for (size_t i = 0; i < count; ++i) {
    const Node& n = graph.nodes[i];
    backward[i] = mark::kOrigin.Has(n.attrs);
    out.training |= backward[i];
    out.data[i] = IsKind(n, kData) || IsKind(n, kScalar);
    reached[i] = IsKind(n, kParameter) || custom[i];
    for (Value v : n.inputs) {
      if (backward[v.node]) backward[i] = true;
      if (out.data[v.node]) out.data[i] = true;
      if (reached[v.node] && !n.op->zero_gradient && IsFloat(graph.TypeOf(v).dtype)) reached[i] = true;
    }
  }
  const std::vector<bool> read = ReadForward(graph, &backward);
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
  FindRemade(graph, &out);
  out.shared.assign(count, false);
  if (shards) FindShared(graph, *shards, &out);
  NumberKinds(graph, &out);
  JoinEdges(count, &out);
  return out;
}

}  // namespace mslua
