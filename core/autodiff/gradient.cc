#include "core/autodiff/gradient.h"

#include "absl/cleanup/cleanup.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "core/op/marks.h"

namespace mslua {
namespace {

// By node: the custom gradient that it is an output of.
using CustomByNode = absl::flat_hash_map<int32_t, const CustomGradient*>;

CustomByNode ByNode(const CustomGradients* custom) {
  CustomByNode by_node;
  if (custom == nullptr) return by_node;
  for (const auto& c : *custom) {
    for (Value v : c->outputs) by_node.emplace(v.node, c.get());
  }
  return by_node;
}

// For each node, whether one of `wrt` reaches it through operators that have gradients, or through custom ones.
std::vector<bool> Reached(const Graph& graph, absl::Span<const Value> wrt, int32_t end, const CustomByNode& custom) {
  std::vector<bool> reached(end, false);
  for (Value v : wrt) reached[v.node] = true;
  const auto carries = [&](Value v) { return reached[v.node] && IsFloat(graph.TypeOf(v).dtype); };
  for (int32_t i = 0; i < end; ++i) {
    const Node& n = graph.nodes[i];
    const auto own = custom.find(i);
    if (own != custom.end()) {
      for (Value v : own->second->inputs) reached[i] = reached[i] || carries(v);
      for (const CustomGradient::Read& read : own->second->reads) reached[i] = reached[i] || carries(read.value);
    } else if (!n.op->zero_gradient) {
      for (Value v : n.inputs) reached[i] = reached[i] || carries(v);
    }
  }
  return reached;
}

// A custom gradient would lose what flows through a value that is no input of its part.
Status CheckReads(GraphBuilder& g, const CustomGradient& custom, const std::vector<bool>& reached) {
  for (const CustomGradient::Read& read : custom.reads) {
    if (!reached[read.value.node]) continue;
    const Node& maker = g.NodeOf(read.value);
    const bool input = maker.op->name == "input";
    const std::string what = input && maker.attrs.Str("kind") == kParameter
                                 ? absl::StrCat("the parameter '", maker.attrs.Str("name"), "'")
                                 : "a value that is none of its arguments";
    g.SetLocation(g.graph().nodes[read.reader].location);
    g.Fail(absl::InvalidArgumentError(absl::StrCat(
        custom.name, ": construct reads ", what, ", ", ToString(g.TypeOf(read.value)),
        ", whose gradient is asked for: bprop gives those of arguments alone; make it an argument of construct and let "
        "bprop return its gradient, or take ops.stop_gradient of it")));
    return g.status();
  }
  return absl::OkStatus();
}

// The gradients of the inputs of a custom one; nothing where none flows back. They are marked with the origin where
// `mark_origin` says so.
StatusOr<std::vector<Value>> CallCustom(GraphBuilder& g, const CustomGradient& custom, const std::vector<bool>& reached,
                                        const absl::flat_hash_map<Value, Value>& sums, bool mark_origin) {
  std::vector<Value> dy;
  bool any = false;
  for (Value v : custom.outputs) {
    const auto it = sums.find(v);
    dy.push_back(it == sums.end() ? Value() : it->second);
    any |= dy.back().valid();
  }
  if (!any) return std::vector<Value>();
  RETURN_IF_ERROR(CheckReads(g, custom, reached));
  const size_t first = g.graph().nodes.size();
  for (size_t i = 0; i < dy.size(); ++i) {
    if (!dy[i].valid()) dy[i] = ZerosLike(g, custom.outputs[i]);
  }
  const auto location = g.location();
  ASSIGN_OR_RETURN(std::vector<Value> dx, custom.gradient(dy));
  g.SetLocation(location);
  RETURN_IF_ERROR(g.status());
  for (size_t n = first; mark_origin && n < g.graph().nodes.size(); ++n) {
    Node& node = g.graph().nodes[n];
    if (node.op->name != "input") mark::kOrigin.Set(node.attrs, int64_t{custom.outputs.back().node});
  }
  if (dx.size() != custom.inputs.size())
    return absl::InternalError(absl::StrCat(custom.name, ": bprop gives ", dx.size(), " values"));
  return dx;
}

// The gradient of a scalar y, or of any y with a `seed`, with respect to itself.
StatusOr<Value> SeedOf(GraphBuilder& g, Value y, Value seed) {
  const TensorType y_type = g.TypeOf(y);
  if (!IsFloat(y_type.dtype))
    return absl::InvalidArgumentError(
        absl::StrCat("the gradient of ", ToString(y_type), " is not defined: expected a float type"));
  if (seed.valid()) return seed;
  if (y_type.elements() != 1)
    return absl::InvalidArgumentError(
        absl::StrCat("the gradient needs a scalar, got ", ToString(y_type), " (reduce it, or give a seed)"));
  return g.Constant(1, y_type.dtype, y_type.shape);
}

// The gradients of node `index`'s inputs that are reached, by the rule of its operator; invalid for the others. `dy`:
// of its outputs, some of which are valid.
StatusOr<std::vector<Value>> CallRule(GraphBuilder& g, int32_t index, const std::vector<Value>& dy,
                                      const std::vector<bool>& reached, bool mark_origin) {
  const Node node = g.graph().nodes[index];  // a copy: the vector grows below
  if (!node.op->grad) {
    g.Fail(absl::UnimplementedError(
        absl::StrCat(node.op->name, " has no gradient (ops.stop_gradient before it, or another operator)")));
    return g.status();
  }
  std::vector<Value> outputs;
  for (size_t o = 0; o < node.outputs.size(); ++o) outputs.push_back({index, static_cast<int32_t>(o)});
  std::vector<bool> needed;
  for (Value v : node.inputs) needed.push_back(reached[v.node] && IsFloat(g.TypeOf(v).dtype));
  const size_t first = g.graph().nodes.size();
  Attrs attrs = node.attrs;  // a rule may hand them on to an operator with other inputs
  mark::kUserStrategy.Erase(attrs);
  GradContext context{g, *node.op, attrs, node.inputs, outputs, dy, needed};
  std::vector<Value> dx = node.op->grad(context);
  RETURN_IF_ERROR(g.status());
  for (size_t n = first; mark_origin && n < g.graph().nodes.size(); ++n)
    mark::kOrigin.Set(g.graph().nodes[n].attrs, int64_t{index});
  if (dx.size() != node.inputs.size())
    return absl::InternalError(
        absl::StrCat(node.op->name, ": gradient gives ", dx.size(), " values for ", node.inputs.size(), " inputs"));
  for (size_t k = 0; k < dx.size(); ++k) {
    if (!needed[k]) dx[k] = Value();
    if (!dx[k].valid()) continue;
    const TensorType want = g.TypeOf(node.inputs[k]), got = g.TypeOf(dx[k]);
    if (want != got)
      return absl::InternalError(
          absl::StrCat(node.op->name, ": gradient of input ", k, " is ", ToString(got), ", expected ", ToString(want)));
  }
  return dx;
}

// Adds to `sums`, which has y's, the gradients of all values that are reached, from the last node to the first.
Status SumGradients(GraphBuilder& g, const std::vector<bool>& reached, const CustomGradients* custom, bool mark_origin,
                    absl::flat_hash_map<Value, Value>* sums) {
  const CustomByNode custom_by_node = ByNode(custom);
  const auto restore_location = absl::MakeCleanup([&g, location = g.location()] { g.SetLocation(location); });
  const auto add = [&](Value x, Value dx) {
    auto [it, fresh] = sums->emplace(x, dx);
    if (!fresh) it->second = g.Op("add", {it->second, dx}, mark_origin ? Attrs{{mark::kSum.name, true}} : Attrs());
  };
  const auto locate = [&g](const Node& node) {
    if (!node.location) return;
    auto location = std::make_shared<Location>(*node.location);
    location->scope = absl::StrCat("grad(", location->scope, ")");
    g.SetLocation(std::move(location));
  };
  for (int32_t i = static_cast<int32_t>(reached.size()) - 1; i >= 0; --i) {
    if (!reached[i]) continue;
    const Node node = g.graph().nodes[i];  // a copy: the vector grows below
    if (const auto own = custom_by_node.find(i); own != custom_by_node.end()) {
      const CustomGradient& part = *own->second;
      if (part.outputs.back().node != i) continue;
      locate(node);
      ASSIGN_OR_RETURN(const std::vector<Value> dx, CallCustom(g, part, reached, *sums, mark_origin));
      for (size_t k = 0; k < dx.size(); ++k) {
        if (dx[k].valid() && reached[part.inputs[k].node]) add(part.inputs[k], dx[k]);
      }
      continue;
    }
    if (node.inputs.empty() || node.op->zero_gradient) continue;
    std::vector<Value> dy;
    bool any = false;
    for (size_t o = 0; o < node.outputs.size(); ++o) {
      const auto it = sums->find({i, static_cast<int32_t>(o)});
      dy.push_back(it == sums->end() ? Value() : it->second);
      any |= dy.back().valid();
    }
    if (!any) continue;
    locate(node);
    ASSIGN_OR_RETURN(const std::vector<Value> dx, CallRule(g, i, dy, reached, mark_origin));
    for (size_t k = 0; k < dx.size(); ++k) {
      if (dx[k].valid()) add(node.inputs[k], dx[k]);
    }
  }
  return absl::OkStatus();
}

}  // namespace

StatusOr<std::vector<Value>> Gradients(GraphBuilder& g, Value y, absl::Span<const Value> wrt, Value seed,
                                       bool mark_origin, std::vector<bool>* flows, const CustomGradients* custom) {
  RETURN_IF_ERROR(g.status());
  ASSIGN_OR_RETURN(seed, SeedOf(g, y, seed));
  const auto end = static_cast<int32_t>(g.graph().nodes.size());
  const std::vector<bool> reached = Reached(g.graph(), wrt, end, ByNode(custom));
  absl::flat_hash_map<Value, Value> sums;  // the gradient of a forward value, so far
  sums[y] = seed;
  RETURN_IF_ERROR(SumGradients(g, reached, custom, mark_origin, &sums));
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
