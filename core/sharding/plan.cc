#include "core/sharding/plan.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/op/marks.h"

namespace mslua {
namespace {

bool IsInput(const Node& n) { return n.op->name == "input"; }
bool IsInput(const Node& n, const char* kind) { return IsInput(n) && n.attrs.Str("kind") == kind; }

// The shardings of a graph in the making.
class Propagation {
 public:
  Propagation(const Graph& graph, Resharder& resharder, const PropagateOptions& options)
      : graph_(graph), resharder_(resharder), mesh_(resharder.mesh()), options_(options) {}

  StatusOr<ShardPlan> Run() {
    const size_t n = graph_.nodes.size();
    decided_.assign(n, false);
    pinned_.assign(n, -1);
    batch_.resize(n);
    for (size_t i = 0; i < n; ++i) {
      ASSIGN_OR_RETURN(NodeRule rule, RuleOf(graph_, graph_.nodes[i]));
      plan_.shardings.emplace_back(rule);
      plan_.rules.push_back(std::move(rule));
    }
    Classify();
    for (int32_t i = 0; i < Size(); ++i) {
      if (mark::kBoundary.Has(At(i).attrs)) RETURN_IF_ERROR(SetLayout(i, BoundaryLayout(i)));
    }
    for (int32_t i = 0; i < Size(); ++i) {
      if (!backward_[i] && !decided_[i]) RETURN_IF_ERROR(Forward(i));
    }
    for (int32_t i = Size() - 1; i >= 0; --i) {
      if (!backward_[i] && !decided_[i] && !IsOptimizerState(i)) RETURN_IF_ERROR(FollowConsumers(i));
    }
    RETURN_IF_ERROR(ShardOptimizer());
    for (int32_t i = 0; i < Size(); ++i) {
      if (!backward_[i] || decided_[i]) continue;
      if (mark::kOrigin.Has(graph_.nodes[i].attrs))
        FollowOrigin(i);
      else
        FollowInputs(i);
    }
    for (int32_t i = Size() - 1; i >= 0; --i) {
      if (!decided_[i]) RETURN_IF_ERROR(FollowConsumers(i));
    }
    return std::move(plan_);
  }

 private:
  int32_t Size() const { return static_cast<int32_t>(graph_.nodes.size()); }
  const Node& At(int32_t i) const { return graph_.nodes[i]; }
  // What a search has chosen for a node, or null.
  const Sharding* Chosen(int32_t i) const {
    const bool any = static_cast<size_t>(i) < options_.chosen.size() && options_.chosen[i].has_value();
    return any ? &*options_.chosen[i] : nullptr;
  }

  // Which nodes depend on a gradient, and which on data; who reads each node.
  void Classify() {
    backward_.assign(graph_.nodes.size(), false);
    data_.assign(graph_.nodes.size(), false);
    readers_.resize(graph_.nodes.size());
    for (int32_t i = 0; i < Size(); ++i) {
      const Node& n = At(i);
      backward_[i] = mark::kOrigin.Has(n.attrs);
      data_[i] = IsInput(n, kData);
      for (size_t k = 0; k < n.inputs.size(); ++k) {
        const Value v = n.inputs[k];
        if (backward_[v.node]) backward_[i] = true;
        if (data_[v.node]) data_[i] = true;
        readers_[v.node].emplace_back(i, k);
      }
    }
    // What parameters, state and constants make for updates alone comes with the updates.
    for (int32_t i = Size() - 1; i >= 0; --i) {
      if (IsInput(At(i)) || data_[i] || readers_[i].empty()) continue;
      backward_[i] = backward_[i] || std::all_of(readers_[i].begin(), readers_[i].end(),
                                                 [this](const auto& reader) { return backward_[reader.first]; });
    }
  }

  Status Forward(int32_t i) {
    const Node& n = At(i);
    if (IsInput(n)) return Given(i);
    const int batch = BatchFactor(i);
    MarkBatch(i, batch);
    const std::string* strategy = mark::kUserStrategy.Find(n.attrs);
    if (strategy != nullptr) return UserStrategy(i, *strategy);
    if (Chosen(i) != nullptr) {
      RETURN_IF_ERROR(Annotate(CheckSharding(mesh_, plan_.rules[i], *Chosen(i)), NameOf(n)));
      Decide(i, *Chosen(i));
    } else if (batch >= 0 && !options_.as_data) {
      Sharding s(plan_.rules[i]);
      for (int a = 0; a < mesh_.axes(); ++a) {
        if (CanShard(plan_.rules[i], batch, mesh_.Size(s.factors[batch]) * mesh_.size(a)))
          s.factors[batch].push_back(static_cast<int8_t>(a));
      }
      Decide(i, std::move(s));
    } else if (data_[i]) {
      FollowInputs(i);
    }
    return absl::OkStatus();
  }

  // Data, scalars, and inputs whose layout is settled. Other parameters and state wait for their consumers.
  Status Given(int32_t i) {
    const Node& n = At(i);
    const std::string& name = n.attrs.Str("name");
    const TensorType& type = n.outputs[0];
    const auto fixed = options_.fixed.find(name);
    if (fixed != options_.fixed.end()) return SetLayout(i, fixed->second);
    if (!IsInput(n, kData)) {
      if (IsInput(n, kScalar)) Decide(i, Sharding(plan_.rules[i]));
      return absl::OkStatus();
    }
    if (type.rank() > 0) batch_[i].assign(1, 0);
    if (!options_.data_layout) return SetLayout(i, BatchLayout(mesh_, type));
    ASSIGN_OR_RETURN(const Layout layout, options_.data_layout(name, type));
    return SetLayout(i, layout);
  }

  Layout BoundaryLayout(int32_t i) const {
    const TensorType& type = At(i).outputs[0];
    return mark::kBoundary.Get(At(i).attrs) ? BatchLayout(mesh_, type) : Layout(static_cast<int>(type.rank()));
  }

  Status SetLayout(int32_t i, const Layout& layout) {
    const TensorType& type = At(i).outputs[0];
    if (layout.rank() != type.rank() || layout.partial() || !layout.Divides(mesh_, type.shape))
      return absl::InvalidArgumentError(absl::StrCat("input '", At(i).attrs.Str("name"), "', ", ToString(type),
                                                     ", cannot lie as ", layout.ToString(), " on ", mesh_.ToString(),
                                                     " devices"));
    Sharding s(plan_.rules[i]);
    Adopt(i, plan_.rules[i].rule.outputs[0], layout, &s);
    Decide(i, std::move(s));
    return absl::OkStatus();
  }

  // The factor that shards the batch of a node, or -1.
  int BatchFactor(int32_t i) const {
    const Node& n = At(i);
    for (size_t k = 0; k < n.inputs.size(); ++k) {
      const auto& batch = batch_[n.inputs[k].node];
      const int d = static_cast<size_t>(n.inputs[k].output) < batch.size() ? batch[n.inputs[k].output] : -1;
      if (d < 0) continue;
      const int f = plan_.rules[i].ShardedFactor(plan_.rules[i].rule.inputs[k][d]);
      if (f >= 0) return f;
    }
    return -1;
  }
  void MarkBatch(int32_t i, int factor) {
    const NodeRule& rule = plan_.rules[i];
    for (const FactorRule::Tensor& tensor : rule.rule.outputs) {
      int at = -1;
      for (size_t d = 0; d < tensor.size() && factor >= 0; ++d) {
        if (rule.ShardedFactor(tensor[d]) == factor) at = static_cast<int>(d);
      }
      batch_[i].push_back(at);
    }
  }

  Status UserStrategy(int32_t i, const std::string& text) {
    const Node& n = At(i);
    ASSIGN_OR_RETURN(const Strategy strategy, ParseStrategy(text));
    ASSIGN_OR_RETURN(const std::vector<int64_t> parts, FactorParts(mesh_, graph_, n, plan_.rules[i], strategy));
    double best = std::numeric_limits<double>::infinity();
    Sharding chosen;
    for (Sharding& s : Assignments(mesh_, parts)) {
      ASSIGN_OR_RETURN(double seconds, InputCost(i, s));
      if (Chosen(i) != nullptr && s == *Chosen(i)) seconds = -1;
      if (seconds >= best) continue;
      best = seconds;
      chosen = std::move(s);
    }
    Decide(i, std::move(chosen));
    pinned_[i] = i;
    return absl::OkStatus();
  }

  // State that nothing on the way forward reads: it lies as its parameter or finer.
  bool IsOptimizerState(int32_t i) const {
    return IsInput(At(i), kState) && std::none_of(readers_[i].begin(), readers_[i].end(),
                                                  [this](const auto& reader) { return decided_[reader.first]; });
  }

  // Settles the layouts of optimizer state and of updates, where they are finer than their parameters'.
  Status ShardOptimizer() {
    if (!options_.optimizer_shards) return absl::OkStatus();
    absl::flat_hash_map<std::string, int32_t> parameters;
    for (int32_t i : graph_.Inputs()) {
      const Node& n = At(i);
      if (IsInput(n, kParameter) && decided_[i] && n.outputs[0].bytes() >= options_.optimizer_shards->bytes &&
          !options_.optimizer_shards->except.contains(n.attrs.Str("name")))
        parameters.emplace(n.attrs.Str("name"), i);
    }
    for (int32_t i : graph_.Inputs()) {
      const std::string& name = At(i).attrs.Str("name");
      const size_t dot = name.find('.');
      if (!IsInput(At(i), kState) || decided_[i] || dot == name.npos) continue;
      const auto found = parameters.find(name.substr(dot + 1));
      if (found == parameters.end() || At(found->second).outputs[0].shape != At(i).outputs[0].shape) continue;
      const Layout fine = Finest(mesh_, plan_.Output({found->second, 0}), At(i).outputs[0].shape);
      RETURN_IF_ERROR(SetLayout(i, fine));
      updates_.emplace(found->second, fine);
      finer_.emplace(found->first, fine);
    }
    if (!options_.optimizer_shards->parameters) return absl::OkStatus();
    // An evaluation, which has no state, may come first: it leaves parameters where the training wants them.
    const bool evaluates = std::none_of(graph_.outputs.begin(), graph_.outputs.end(),
                                        [](const GraphOutput& o) { return !o.updates.empty(); });
    for (int32_t i : graph_.Inputs()) {
      const auto found = parameters.find(At(i).attrs.Str("name"));
      if (found == parameters.end() || found->second != i) continue;
      const auto update = updates_.find(i);
      if (update != updates_.end())
        RETURN_IF_ERROR(SetLayout(i, update->second));
      else if (evaluates && options_.fixed.count(found->first) == 0)
        RETURN_IF_ERROR(SetLayout(i, Finest(mesh_, plan_.Output({i, 0}), At(i).outputs[0].shape)));
    }
    return absl::OkStatus();
  }

  // What the inputs' way to a node of that sharding costs. A parameter that has no layout yet costs as its pinned
  // readers before this one want it.
  StatusOr<double> InputCost(int32_t i, const Sharding& s) {
    const Node& n = At(i);
    double seconds = 0;
    for (size_t k = 0; k < n.inputs.size(); ++k) {
      const Value v = n.inputs[k];
      Layout from;
      if (decided_[v.node]) {
        from = plan_.Output(v);
      } else {
        const auto& readers = readers_[v.node];
        const auto reader = std::find_if(readers.begin(), readers.end(),
                                         [&](const auto& r) { return r.first < i && pinned_[r.first] >= 0; });
        if (reader == readers.end()) continue;
        from = InputLayout(plan_.rules[reader->first], plan_.shardings[reader->first], reader->second);
      }
      ASSIGN_OR_RETURN(const ReshardPlan* plan,
                       resharder_.Plan(from, InputLayout(plan_.rules[i], s, k), graph_.TypeOf(v)));
      seconds += plan->seconds;
    }
    return seconds;
  }

  // Takes the first decided consumer's wish for an output, a pinned one's before others'.
  Status FollowConsumers(int32_t i) {
    Sharding s(plan_.rules[i]);
    int32_t from = -1;
    size_t from_input = 0;
    for (const auto& [reader, k] : readers_[i]) {
      if (!decided_[reader] || mark::kBoundary.Has(At(reader).attrs)) continue;
      if (from < 0 || (pinned_[from] < 0 && pinned_[reader] >= 0)) {
        from = reader;
        from_input = k;
      } else if (pinned_[from] >= 0 && pinned_[reader] >= 0 && !SameOperator(pinned_[from], pinned_[reader]) &&
                 IsInput(At(i))) {
        RETURN_IF_ERROR(SameSlices(i, from, from_input, reader, k));
      }
    }
    if (from >= 0) {
      const Value v = At(from).inputs[from_input];
      Adopt(i, plan_.rules[i].rule.outputs[v.output], plan_.Input(from, from_input), &s);
      if (At(i).inputs.empty() || !data_[i]) pinned_[i] = pinned_[from];
    }
    if (Chosen(i) != nullptr) {
      RETURN_IF_ERROR(Annotate(CheckSharding(mesh_, plan_.rules[i], *Chosen(i)), NameOf(At(i))));
      s = *Chosen(i);
    }
    Decide(i, std::move(s));
    return absl::OkStatus();
  }

  // Whether two nodes with users' strategies are one operator of the recipe: each micro-batch has a node of it.
  bool SameOperator(int32_t a, int32_t b) const {
    const Node &x = At(a), &y = At(b);
    return a == b || (x.op == y.op && x.location != nullptr && y.location != nullptr && *x.location == *y.location &&
                      mark::kUserStrategy.Get(x.attrs) == mark::kUserStrategy.Get(y.attrs));
  }

  // The strategies of two operators for one parameter must shard it the same way. One operator may take it twice,
  // sharded in two ways: it lies as the first operand has it.
  Status SameSlices(int32_t parameter, int32_t a, size_t ka, int32_t b, size_t kb) {
    const TensorType& type = At(parameter).outputs[0];
    const Layout first = plan_.Input(a, ka), second = plan_.Input(b, kb);
    if (first.Local(mesh_, type.shape) == second.Local(mesh_, type.shape)) return absl::OkStatus();
    const auto shards = [&](const Layout& l) {
      std::vector<int64_t> parts;
      for (int d = 0; d < l.rank(); ++d) parts.push_back(mesh_.Size(l.Dim(d)));
      return absl::StrCat("(", absl::StrJoin(parts, ","), ")");
    };
    return absl::InvalidArgumentError(
        absl::StrCat("parameter '", At(parameter).attrs.Str("name"), "', ", ToString(type), ", is sharded ",
                     shards(first), " by ", NameOf(At(pinned_[a])), " and ", shards(second), " by ",
                     NameOf(At(pinned_[b])), ": all operators that read a parameter must shard it alike"));
  }

  // Backward nodes: tensors of the forward node lie as it has them, gradients as what they are the gradient of.
  void FollowOrigin(int32_t i) {
    const Node& n = At(i);
    const int32_t origin = static_cast<int32_t>(mark::kOrigin.Get(n.attrs));
    const Node& f = At(origin);
    Sharding s(plan_.rules[i]);
    for (size_t k = 0; k < n.inputs.size(); ++k) {
      const absl::optional<Layout> layout = LayoutSeenFrom(origin, f, n.inputs[k]);
      if (layout) Adopt(i, plan_.rules[i].rule.inputs[k], *layout, &s);
    }
    for (size_t o = 0; o < n.outputs.size(); ++o) {
      for (size_t k = 0; k < f.inputs.size(); ++k) {
        if (graph_.TypeOf(f.inputs[k]).shape != n.outputs[o].shape) continue;
        Adopt(i, plan_.rules[i].rule.outputs[o], plan_.Input(origin, k), &s, /*only_new=*/true);
        break;
      }
    }
    Decide(i, std::move(s));
  }

  absl::optional<Layout> LayoutSeenFrom(int32_t origin, const Node& f, Value v) const {
    for (size_t k = 0; k < f.inputs.size(); ++k) {
      if (f.inputs[k] == v) return plan_.Input(origin, k);
    }
    if (v.node == origin) return plan_.Output(v).WithoutPartial();
    const int64_t* same = mark::kOrigin.Find(At(v.node).attrs);
    if (same != nullptr && *same == origin) return plan_.Output(v).WithoutPartial();
    for (size_t o = 0; o < f.outputs.size(); ++o) {
      if (f.outputs[o].shape == graph_.TypeOf(v).shape)
        return plan_.Output({origin, static_cast<int32_t>(o)}).WithoutPartial();
    }
    if (!decided_[v.node]) return absl::nullopt;
    return plan_.Output(v).WithoutPartial();
  }

  // As the inputs lie: state first, then parameters, then others, larger ones first. Undecided when no input says more
  // than that it is whole.
  void FollowInputs(int32_t i) {
    const Node& n = At(i);
    std::vector<std::pair<int64_t, size_t>> order;
    bool known = false;
    for (size_t k = 0; k < n.inputs.size(); ++k) {
      const Value v = n.inputs[k];
      if (!decided_[v.node]) continue;
      const int64_t bytes = graph_.TypeOf(v).bytes();
      const int64_t kind = IsInput(At(v.node), kState) ? 2 : IsInput(At(v.node), kParameter) ? 1 : 0;
      order.emplace_back(-(kind << 50) - bytes, k);
      known |= graph_.TypeOf(v).elements() > 1;
    }
    if (!known && !data_[i]) return;
    std::sort(order.begin(), order.end());
    Sharding s(plan_.rules[i]);
    for (const auto& [unused, k] : order) {
      const Layout* finer = FinerFor(n, n.inputs[k].node);
      Adopt(i, plan_.rules[i].rule.inputs[k], finer != nullptr ? *finer : plan_.Output(n.inputs[k]).WithoutPartial(),
            &s);
    }
    Decide(i, std::move(s));
  }

  // The layout in which a node of the update takes a parameter or its gradient, where it is finer than the parameter's.
  const Layout* FinerFor(const Node& n, int32_t input) const {
    const auto update = updates_.find(input);
    if (update != updates_.end()) return &update->second;
    const std::string* parameter = mark::kGradientOf.Find(At(input).attrs);
    if (parameter == nullptr || finer_.empty()) return nullptr;
    const auto gradient = finer_.find(*parameter);
    if (gradient == finer_.end() || graph_.TypeOf({input, 0}).rank() != gradient->second.rank()) return nullptr;
    // Sums over micro-batches that stay whole come before the sum over ranks.
    const bool whole = mark::kMicroSum.Has(n.attrs) && !options_.optimizer_shards->sums;
    return whole ? nullptr : &gradient->second;
  }

  // Gives factors without axes those that shard their dimensions in `layout`, as far as they are free and may shard
  // them.
  void Adopt(int32_t i, const FactorRule::Tensor& tensor, const Layout& layout, Sharding* s, bool only_new = false) {
    const NodeRule& rule = plan_.rules[i];
    for (size_t d = 0; d < tensor.size(); ++d) {
      const int f = rule.ShardedFactor(tensor[d]);
      if (f < 0 || !s->factors[f].empty() || (only_new && rule.rule.factors[f].in_input)) continue;
      for (int8_t a : layout.Dim(static_cast<int>(d))) {
        const bool used = std::any_of(s->factors.begin(), s->factors.end(), [a](const AxisList& axes) {
          return std::find(axes.begin(), axes.end(), a) != axes.end();
        });
        if (used || !CanShard(rule, f, mesh_.Size(s->factors[f]) * mesh_.size(a))) break;
        s->factors[f].push_back(a);
      }
    }
  }

  void Decide(int32_t i, Sharding s) {
    plan_.shardings[i] = std::move(s);
    decided_[i] = true;
  }

  const Graph& graph_;
  Resharder& resharder_;
  const Mesh& mesh_;
  const PropagateOptions& options_;
  ShardPlan plan_;
  std::vector<bool> decided_, backward_, data_;
  absl::flat_hash_map<int32_t, Layout> updates_;    // of a parameter: the layout that its update is made in
  absl::flat_hash_map<std::string, Layout> finer_;  // the same by the parameter's name
  std::vector<int32_t> pinned_;          // the node whose user's strategy this node's sharding comes from, or -1
  std::vector<std::vector<int>> batch_;  // by node and output: the dimension of the batch, or -1
  std::vector<std::vector<std::pair<int32_t, size_t>>> readers_;
};

}  // namespace

Layout ShardPlan::Input(int32_t node, size_t i) const { return InputLayout(rules[node], shardings[node], i); }

Layout ShardPlan::Output(Value v) const {
  return OutputLayout(rules[v.node], shardings[v.node], static_cast<size_t>(v.output));
}

StatusOr<ShardPlan> Propagate(const Graph& graph, Resharder& resharder, const PropagateOptions& options) {
  return Propagation(graph, resharder, options).Run();
}

Layout Finest(const Mesh& mesh, Layout layout, const Shape& shape) {
  for (int a = 0; a < mesh.axes(); ++a) {
    for (int d = 0; d < layout.rank() && layout.UseOf(a) == Layout::Use::kReplicated; ++d) {
      if (shape[d] % (mesh.Size(layout.Dim(d)) * mesh.size(a)) == 0) layout.Append(d, a);
    }
  }
  return layout;
}

Layout BatchLayout(const Mesh& mesh, const TensorType& type) {
  Layout layout(static_cast<int>(type.rank()));
  for (int a = 0; a < mesh.axes() && type.rank() > 0; ++a) {
    if (type.shape[0] % (mesh.Size(layout.Dim(0)) * mesh.size(a)) == 0) layout.Append(0, a);
  }
  return layout;
}

Graph Annotated(const Graph& graph, const ShardPlan& plan, const Mesh& mesh) {
  Graph out = graph;
  for (size_t i = 0; i < out.nodes.size(); ++i) {
    if (!out.nodes[i].inputs.empty())
      mark::kInStrategy.Set(out.nodes[i].attrs, ToString(StrategyOf(mesh, plan.rules[i], plan.shardings[i])));
  }
  return out;
}

}  // namespace mslua
