#include "core/sharding/strategy.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "core/base/text.h"
#include "core/op/marks.h"

namespace mslua {
namespace {

const std::string& ShownName(const OpDef& op) { return op.class_name.empty() ? op.name : op.class_name; }

std::string TooManyShards(int64_t shards, const Mesh& mesh) {
  return absl::StrCat("has ", shards, " shards, which does not divide ", mesh.ranks(), " devices (use a divisor of ",
                      mesh.ranks(), ")");
}

// Checks a strategy against the node it is for and collects the parts of factors.
class PartsOf {
 public:
  PartsOf(const Mesh& mesh, const Graph& graph, const Node& node, const NodeRule& rule, const Strategy& strategy)
      : mesh_(mesh), graph_(graph), node_(node), rule_(rule), strategy_(strategy) {}

  StatusOr<std::vector<int64_t>> Run() {
    if (strategy_.size() != node_.inputs.size())
      return Bad(absl::StrCat("has ", strategy_.size(), " entries, the operator has ",
                              Counted(static_cast<int64_t>(node_.inputs.size()), "input")));
    parts_.assign(rule_.rule.factors.size(), 1);
    said_.assign(parts_.size(), "");
    for (size_t i = 0; i < strategy_.size(); ++i) {
      const TensorType& type = graph_.TypeOf(node_.inputs[i]);
      if (static_cast<int64_t>(strategy_[i].size()) != type.rank())
        return Bad(absl::StrCat("entry ", i + 1, " has ", strategy_[i].size(), " numbers, but ", InputName(i), " is ",
                                mslua::ToString(type), " with ", type.rank(), " dimensions"));
      for (size_t d = 0; d < strategy_[i].size(); ++d) RETURN_IF_ERROR(Dimension(i, d));
    }
    int64_t product = 1;
    for (int64_t p : parts_) product *= p;
    if (mesh_.ranks() % product != 0) return Bad(TooManyShards(product, mesh_));
    return parts_;
  }

 private:
  Status Dimension(size_t i, size_t d) {
    const int64_t parts = strategy_[i][d];
    if (parts == kAnyParts) return absl::OkStatus();
    const TensorType& type = graph_.TypeOf(node_.inputs[i]);
    const int f = rule_.ShardedFactor(rule_.rule.inputs[i][d]);
    const std::string place = absl::StrCat("dimension ", d + 1, " of ", InputName(i), " (", mslua::ToString(type),
                                           f < 0 ? ")" : absl::StrCat(", factor '", rule_.rule.factors[f].name, "')"),
                                           " is sharded ", parts, " ways");
    if (parts < 1) return Bad(absl::StrCat(place, ", expected a number from 1"));
    if (type.shape[d] % parts != 0)
      return Bad(absl::StrCat(place, ", which does not divide ", type.shape[d], " (use a divisor of both ",
                              type.shape[d], " and ", mesh_.ranks(), ")"));
    if (mesh_.ranks() % parts != 0)
      return Bad(absl::StrCat(place, ", which does not divide ", mesh_.ranks(), " devices (use a divisor of both ",
                              type.shape[d], " and ", mesh_.ranks(), ")"));
    if (f < 0) return absl::OkStatus();
    if (parts != 1 && rule_.rule.factors[f].whole)
      return Bad(absl::StrCat(place, ", but the operator needs it whole on a device (use 1)"));
    if (!CanShard(rule_, f, parts))
      return Bad(absl::StrCat(place, ", but its outermost part has ", rule_.sizes[f], " elements (use a divisor of ",
                              rule_.sizes[f], ")"));
    if (said_[f].empty()) {
      parts_[f] = parts;
      said_[f] = place;
    } else if (parts_[f] != parts) {
      return Bad(absl::StrCat(said_[f], ", but ", place, ": the two are one factor and need the same number"));
    }
    return absl::OkStatus();
  }

  std::string InputName(size_t i) const {
    const auto& inputs = node_.op->inputs;
    const InputDef& def = inputs[std::min(i, inputs.size() - 1)];
    return def.variadic ? absl::StrCat(def.name, i - (inputs.size() - 1)) : def.name;
  }
  Status Bad(absl::string_view what) const {
    // What the user did not say, of an operand that has fewer dimensions, is a dash.
    const std::string said = absl::StrReplaceAll(ToString(strategy_), {{absl::StrCat(kAnyParts), "-"}});
    const std::string text = absl::StrCat(ShownName(*node_.op), ": strategy ", said, ": ", what);
    const Location* at = node_.location.get();
    return absl::InvalidArgumentError(
        at != nullptr && !at->file.empty() ? absl::StrCat(at->file, ":", at->line, ": ", text) : text);
  }

  const Mesh& mesh_;
  const Graph& graph_;
  const Node& node_;
  const NodeRule& rule_;
  const Strategy& strategy_;
  std::vector<int64_t> parts_;
  std::vector<std::string> said_;  // what first said a factor's parts
};

class AssignmentSearch {
 public:
  AssignmentSearch(const Mesh& mesh, absl::Span<const int64_t> parts, size_t limit)
      : mesh_(mesh), parts_(parts), limit_(limit) {
    now_.factors.resize(parts.size());
  }
  std::vector<Sharding> Run() {
    Factor(0, 0, parts_.empty() ? 1 : parts_[0]);
    return std::move(found_);
  }

 private:
  // Gives factor `f`, of which `rest` parts are left, axes from `axis` on; then the factors after it.
  void Factor(size_t f, int axis, int64_t rest) {
    if (found_.size() >= limit_) return;
    if (f == parts_.size()) {
      found_.push_back(now_);
      return;
    }
    if (rest == 1) return Factor(f + 1, 0, f + 1 < parts_.size() ? parts_[f + 1] : 1);
    for (int a = axis; a < mesh_.axes(); ++a) {
      if (used_[a] || rest % mesh_.size(a) != 0) continue;
      used_[a] = true;
      now_.factors[f].push_back(static_cast<int8_t>(a));
      Factor(f, a + 1, rest / mesh_.size(a));
      now_.factors[f].pop_back();
      used_[a] = false;
    }
  }

  const Mesh& mesh_;
  const absl::Span<const int64_t> parts_;
  const size_t limit_;
  std::array<bool, Mesh::kMaxAxes> used_{};
  Sharding now_;
  std::vector<Sharding> found_;
};

}  // namespace

std::string ToString(const Strategy& strategy) {
  return absl::StrCat("(",
                      absl::StrJoin(strategy, ",",
                                    [](std::string* out, const std::vector<int64_t>& parts) {
                                      absl::StrAppend(out, "(", absl::StrJoin(parts, ","), ")");
                                    }),
                      ")");
}

StatusOr<Strategy> ParseStrategy(absl::string_view text) {
  const auto bad = [&] {
    return absl::InvalidArgumentError(absl::StrCat("'", text, "' is not a strategy such as ((2,4),(4,1))"));
  };
  std::string dense;
  for (char c : text) {
    if (c != ' ') dense.push_back(c);
  }
  absl::string_view rest = dense;
  if (!absl::ConsumePrefix(&rest, "(") || !absl::ConsumeSuffix(&rest, ")")) return bad();
  Strategy strategy;
  while (!rest.empty()) {
    if (!strategy.empty() && !absl::ConsumePrefix(&rest, ",")) return bad();
    const size_t close = rest.find(')');
    if (!absl::ConsumePrefix(&rest, "(") || close == rest.npos) return bad();
    strategy.emplace_back();
    const absl::string_view inner = rest.substr(0, close - 1);
    for (absl::string_view number : absl::StrSplit(inner, ',', absl::SkipEmpty())) {
      int64_t parts = 0;
      if (!absl::SimpleAtoi(number, &parts)) return bad();
      strategy.back().push_back(parts);
    }
    rest.remove_prefix(close);
  }
  return strategy;
}

StatusOr<std::vector<int64_t>> FactorParts(const Mesh& mesh, const Graph& graph, const Node& node, const NodeRule& rule,
                                           const Strategy& strategy) {
  return PartsOf(mesh, graph, node, rule, strategy).Run();
}

Status CheckParts(const Mesh& mesh, absl::string_view what, absl::string_view tensor, const TensorType& type,
                  absl::Span<const int64_t> parts) {
  if (static_cast<int64_t>(parts.size()) != type.rank())
    return absl::InvalidArgumentError(absl::StrCat(what, ": ", parts.size(), " numbers for ", tensor, ", which is ",
                                                   mslua::ToString(type), " with ", type.rank(), " dimensions"));
  int64_t product = 1;
  for (size_t d = 0; d < parts.size(); ++d) {
    product *= parts[d];
    const int64_t whole = type.shape[d] % parts[d] != 0 ? type.shape[d] : mesh.ranks();
    if (whole % parts[d] == 0) continue;
    return absl::InvalidArgumentError(absl::StrCat(what, ": dimension ", d + 1, " of ", tensor, " (",
                                                   mslua::ToString(type), ") is sharded ", parts[d],
                                                   " ways, which does not divide ", whole, " (use a divisor of both ",
                                                   type.shape[d], " and ", mesh.ranks(), " devices)"));
  }
  if (mesh.ranks() % product == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(what, ": ", tensor, " ", TooManyShards(product, mesh)));
}

void FitTo(const Graph& graph, absl::Span<const Value> values, Strategy* strategy) {
  for (size_t i = 0; i < std::min(values.size(), strategy->size()); ++i) {
    const Shape& shape = graph.TypeOf(values[i]).shape;
    std::vector<int64_t>& parts = (*strategy)[i];
    for (size_t d = 0; d < std::min(shape.size(), parts.size()); ++d) parts[d] = std::gcd(parts[d], shape[d]);
  }
}

Value ShardAs(GraphBuilder& g, Value x, const std::vector<int64_t>& parts) {
  const Shape shape = g.TypeOf(x).shape;
  const Value y = g.Op("reshape", {x}, {{"shape", std::vector<int64_t>(shape.begin(), shape.end())}});
  if (y.valid()) mark::kUserStrategy.Set(g.graph().nodes[y.node].attrs, ToString(Strategy{parts}));
  return y;
}

Status PinStrategy(Graph& graph, size_t first, absl::Span<const Value> operands, const Strategy& strategy,
                   absl::string_view called) {
  if (strategy.size() != operands.size())
    return absl::InvalidArgumentError(absl::StrCat(called, ": strategy ", ToString(strategy), " has ", strategy.size(),
                                                   " entries, the operator has ",
                                                   Counted(static_cast<int64_t>(operands.size()), "input")));
  // The entry for a value that a node reads; of a broadcast operand the dimensions that it has.
  const auto entry = [&](Value v) {
    std::vector<int64_t> any(graph.TypeOf(v).shape.size(), kAnyParts);
    Value source = v;
    const Node& made = graph.nodes[v.node];
    if (v.node >= static_cast<int32_t>(first) && made.op->name == "broadcast_to") source = made.inputs[0];
    const auto at = std::find(operands.begin(), operands.end(), source);
    if (at == operands.end()) return any;
    std::vector<int64_t> said = strategy[static_cast<size_t>(at - operands.begin())];
    if (source == v || said.size() != graph.TypeOf(source).shape.size()) return said;
    const Shape &narrow = graph.TypeOf(source).shape, &wide = graph.TypeOf(v).shape;
    for (size_t d = 0; d < said.size(); ++d) {
      if (narrow[d] == wide[wide.size() - said.size() + d]) any[wide.size() - said.size() + d] = said[d];
    }
    return any;
  };
  for (size_t i = first; i < graph.nodes.size(); ++i) {
    Node& n = graph.nodes[i];
    if (n.op->name == "broadcast_to") continue;
    Strategy own;
    bool known = false;
    for (Value v : n.inputs) {
      own.push_back(entry(v));
      known |= own.back() != std::vector<int64_t>(graph.TypeOf(v).shape.size(), kAnyParts);
    }
    if (known) mark::kUserStrategy.Set(n.attrs, ToString(own));
  }
  return absl::OkStatus();
}

std::vector<Sharding> Assignments(const Mesh& mesh, absl::Span<const int64_t> parts, size_t limit) {
  return AssignmentSearch(mesh, parts, limit).Run();
}

Strategy StrategyOf(const Mesh& mesh, const NodeRule& rule, const Sharding& sharding) {
  Strategy strategy;
  for (size_t i = 0; i < rule.rule.inputs.size(); ++i) {
    const Layout layout = InputLayout(rule, sharding, i);
    strategy.emplace_back();
    for (int d = 0; d < layout.rank(); ++d) strategy.back().push_back(mesh.Size(layout.Dim(d)));
  }
  return strategy;
}

std::string NameOf(const Node& node) {
  if (!node.location) return ShownName(*node.op);
  Location l = *node.location;
  if (!l.instance.empty()) l.scope = absl::StrCat(l.scope, l.scope.empty() ? "" : "/", std::exchange(l.instance, ""));
  const std::string where = ToString(l);
  return where.empty() ? ShownName(*node.op) : absl::StrCat(ShownName(*node.op), " (", where, ")");
}

}  // namespace mslua
