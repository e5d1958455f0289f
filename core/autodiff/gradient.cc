#include "core/autodiff/gradient.h"

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "core/op/marks.h"

namespace mslua {
namespace {

// For each node, whether one of `wrt` reaches it through operators that have gradients.
std::vector<bool> Reached(const Graph& graph, absl::Span<const Value> wrt, int32_t end) {
  std::vector<bool> reached(end, false);
  for (Value v : wrt) reached[v.node] = true;
  for (int32_t i = 0; i < end; ++i) {
    const Node& n = graph.nodes[i];
    if (n.op->zero_gradient) continue;
    for (Value v : n.inputs) {
      if (reached[v.node] && IsFloat(graph.TypeOf(v).dtype)) reached[i] = true;
    }
  }
  return reached;
}

}  // namespace

std::vector<bool> DependsOn(const Graph& graph, Value y, absl::Span<const Value> wrt) {
  std::vector<bool> out;
  for (const Value w : wrt) out.push_back(Reached(graph, {w}, static_cast<int32_t>(graph.nodes.size()))[y.node]);
  return out;
}

StatusOr<std::vector<Value>> Gradients(GraphBuilder& g, Value y, absl::Span<const Value> wrt, Value seed,
                                       bool mark_origin, std::vector<bool>* flows) {
  RETURN_IF_ERROR(g.status());
  const TensorType y_type = g.TypeOf(y);
  if (!IsFloat(y_type.dtype))
    return absl::InvalidArgumentError(
        absl::StrCat("the gradient of ", ToString(y_type), " is not defined: expected a float type"));
  if (!seed.valid()) {
    if (y_type.elements() != 1)
      return absl::InvalidArgumentError(
          absl::StrCat("the gradient needs a scalar, got ", ToString(y_type), " (reduce it, or give a seed)"));
    seed = g.Constant(1, y_type.dtype, y_type.shape);
  }
  const int32_t end = static_cast<int32_t>(g.graph().nodes.size());
  const std::vector<bool> reached = Reached(g.graph(), wrt, end);
  const auto outer_location = g.location();

  absl::flat_hash_map<Value, Value> sums;  // the gradient of a forward value, so far
  sums[y] = seed;
  for (int32_t i = end - 1; i >= 0; --i) {
    if (!reached[i]) continue;
    const Node node = g.graph().nodes[i];  // a copy: the vector grows below
    if (node.inputs.empty() || node.op->zero_gradient) continue;
    std::vector<Value> outputs, dy;
    bool any = false;
    for (size_t o = 0; o < node.outputs.size(); ++o) {
      outputs.push_back({i, static_cast<int32_t>(o)});
      const auto it = sums.find(outputs.back());
      dy.push_back(it == sums.end() ? Value() : it->second);
      any |= dy.back().valid();
    }
    if (!any) continue;
    if (node.location) {
      auto location = std::make_shared<Location>(*node.location);
      location->scope = absl::StrCat("grad(", location->scope, ")");
      g.SetLocation(std::move(location));
    }
    if (!node.op->grad) {
      g.Fail(absl::UnimplementedError(
          absl::StrCat(node.op->name, " has no gradient (ops.stop_gradient before it, or another operator)")));
      break;
    }
    std::vector<bool> needed;
    for (Value v : node.inputs) needed.push_back(reached[v.node] && IsFloat(g.TypeOf(v).dtype));
    const size_t first = g.graph().nodes.size();
    Attrs attrs = node.attrs;  // a rule may hand them on to an operator with other inputs
    mark::kUserStrategy.Erase(attrs);
    GradContext context{g, *node.op, attrs, node.inputs, outputs, dy, needed};
    const std::vector<Value> dx = node.op->grad(context);
    if (!g.status().ok()) break;
    for (size_t n = first; mark_origin && n < g.graph().nodes.size(); ++n)
      mark::kOrigin.Set(g.graph().nodes[n].attrs, int64_t{i});
    if (dx.size() != node.inputs.size())
      return absl::InternalError(
          absl::StrCat(node.op->name, ": gradient gives ", dx.size(), " values for ", node.inputs.size(), " inputs"));
    for (size_t k = 0; k < dx.size(); ++k) {
      if (!needed[k] || !dx[k].valid()) continue;
      const TensorType want = g.TypeOf(node.inputs[k]), got = g.TypeOf(dx[k]);
      if (want != got)
        return absl::InternalError(absl::StrCat(node.op->name, ": gradient of input ", k, " is ", ToString(got),
                                                ", expected ", ToString(want)));
      auto [it, fresh] = sums.emplace(node.inputs[k], dx[k]);
      if (!fresh) it->second = g.Op("add", {it->second, dx[k]}, mark_origin ? Attrs{{mark::kSum.name, true}} : Attrs());
    }
  }
  g.SetLocation(outer_location);
  RETURN_IF_ERROR(g.status());
  std::vector<Value> gradients;
  for (Value w : wrt) {
    const auto it = sums.find(w);
    gradients.push_back(it != sums.end() ? it->second : ZerosLike(g, w));
    if (flows != nullptr) flows->push_back(it != sums.end());
  }
  RETURN_IF_ERROR(g.status());
  return gradients;
}

}  // namespace mslua
