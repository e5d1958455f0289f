#include "core/step/aggregation.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "core/op/marks.h"
#include "core/sharding/sharding.h"
#include "core/step/sync_type.h"

namespace mslua {

void Aggregate(GraphBuilder& g, const Aggregation& how, const OptimizerShards& shards,
               const std::vector<std::shared_ptr<ParameterData>>& parameters, std::vector<Value>* gradients) {
  std::vector<size_t> order;  // of the backward pass
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (how.Covers(*parameters[i]) && !shards.Covers(*parameters[i])) order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return (*gradients)[a].node < (*gradients)[b].node; });
  std::vector<BucketMember> members;
  std::vector<Value> sent;
  for (size_t i : order) {
    sent.push_back(ToSync(g, (*gradients)[i], how.fp32_sync));
    const TensorType type = g.TypeOf(sent.back());
    members.push_back({type.dtype, type.bytes(), parameters[i]->comm_fusion});
  }
  const std::vector<int64_t> buckets = AssignBuckets(how.buckets, members);
  for (size_t k = 0; k < order.size(); ++k) {
    const size_t i = order[k];
    auto location = std::make_shared<Location>();
    location->scope = absl::StrCat("gradient of ", parameters[i]->key);
    g.SetLocation(std::move(location));
    Value& d = (*gradients)[i];
    const DType dtype = g.TypeOf(d).dtype;
    d = g.Op(
        "all_reduce", {sent[k]},
        {{"group", how.ranks}, {"op", std::string(how.mean ? "mean" : "sum")}, {"fusion", kFirstBucket + buckets[k]}});
    d = Cast(g, d, dtype);
  }
  g.SetLocation(nullptr);
}

namespace {

// The dimensions of a graph's values in classes: those that some operator's rule gives one factor.
class ConnectedDimensions {
 public:
  explicit ConnectedDimensions(const Graph& graph) {
    for (const Node& n : graph.nodes) {
      std::vector<size_t>& first = first_.emplace_back();
      for (const TensorType& t : n.outputs) first.push_back(Add(t.shape.size()));
    }
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      const Node& n = graph.nodes[i];
      const auto rule = RuleOf(graph, n);
      if (!rule.ok()) continue;  // what has none connects nothing
      const size_t factors = Add(rule->rule.factors.size());
      for (size_t k = 0; k < n.inputs.size(); ++k) Connect(*rule, rule->rule.inputs[k], n.inputs[k], factors);
      for (size_t o = 0; o < n.outputs.size(); ++o)
        Connect(*rule, rule->rule.outputs[o], {static_cast<int32_t>(i), static_cast<int32_t>(o)}, factors);
      if (n.op->name == "reshape") ConnectOnes(graph, n.inputs[0], {static_cast<int32_t>(i), 0});
    }
  }

  size_t ClassOf(Value v, size_t dim) const { return Root(At(v, dim)); }

 private:
  size_t Add(size_t n) {
    const size_t first = parents_.size();
    for (size_t i = 0; i < n; ++i) parents_.push_back(first + i);
    return first;
  }
  size_t At(Value v, size_t dim) const {
    return first_[static_cast<size_t>(v.node)][static_cast<size_t>(v.output)] + dim;
  }
  size_t Root(size_t i) const {
    while (parents_[i] != i) i = parents_[i];
    return i;
  }
  void Connect(const NodeRule& rule, const FactorRule::Tensor& dims, Value v, size_t factors) {
    for (size_t d = 0; d < dims.size(); ++d) {
      int f = rule.ShardedFactor(dims[d]);
      if (f < 0 && dims[d].size() == 1) f = dims[d][0];  // a batch of one row
      if (f < 0) continue;
      Join(Root(At(v, d)), Root(factors + static_cast<size_t>(f)));
    }
  }

  void Join(size_t a, size_t b) { parents_[std::max(a, b)] = std::min(a, b); }
  // A reshape's dimensions of size 1 have no factors: those in front, a batch of one row, stay in front.
  void ConnectOnes(const Graph& graph, Value x, Value y) {
    const Shape &from = graph.TypeOf(x).shape, &to = graph.TypeOf(y).shape;
    for (size_t d = 0; d < std::min(from.size(), to.size()) && from[d] == 1 && to[d] == 1; ++d)
      Join(Root(At(x, d)), Root(At(y, d)));
  }

  std::vector<std::vector<size_t>> first_;  // by node and output: its first dimension
  std::vector<size_t> parents_;             // of dimensions and factors; roots are their own
};

constexpr int kNoRows = -1;

// What the nodes of a graph are made of.
struct Sources {
  explicit Sources(const Graph& graph) : data(graph.nodes.size(), false), parameters(graph.nodes.size(), false) {
    for (const int32_t i : graph.Inputs()) {
      const std::string& kind = graph.nodes[static_cast<size_t>(i)].attrs.Str("kind");
      if (kind == kData) data[static_cast<size_t>(i)] = true;
      if (kind == kParameter) parameters[static_cast<size_t>(i)] = true;
    }
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      for (const Value& v : graph.nodes[i].inputs) {
        data[i] = data[i] || data[static_cast<size_t>(v.node)];
        parameters[i] = parameters[i] || parameters[static_cast<size_t>(v.node)];
      }
    }
  }

  std::vector<bool> data, parameters;
};

// Whether what is made of node `at`, which is made of neither data nor parameters, meets parameters before it meets
// data.
bool MeetsParameters(const Graph& graph, int32_t at, const Sources& sources) {
  absl::flat_hash_set<int32_t> made_of_it = {at};
  for (int32_t i = at + 1; i < static_cast<int32_t>(graph.nodes.size()); ++i) {
    bool follows = false, data = false, parameters = false;
    for (const Value& v : graph.nodes[static_cast<size_t>(i)].inputs) {
      if (made_of_it.contains(v.node)) {
        follows = true;
      } else {
        data = data || sources.data[static_cast<size_t>(v.node)];
        parameters = parameters || sources.parameters[static_cast<size_t>(v.node)];
      }
    }
    if (!follows) continue;
    if (data || parameters) return !data;
    made_of_it.insert(i);
  }
  return false;
}

// The dimension of a random node's output along which rows lie, or kNoRows. `several`: batches have more than one row.
int RowsOf(const Graph& graph, int32_t at, const ConnectedDimensions& dimensions,
           const absl::flat_hash_set<size_t>& rows, const absl::flat_hash_set<size_t>& parameters,
           const Sources& sources, bool several) {
  const Node& node = graph.nodes[static_cast<size_t>(at)];
  const bool data = sources.data[static_cast<size_t>(at)];
  const bool of_weights = sources.parameters[static_cast<size_t>(at)] && !data;
  const size_t rank = node.outputs[0].shape.size();
  bool of_parameters = true;
  for (size_t d = 0; d < rank; ++d) {
    const size_t in = dimensions.ClassOf({at, 0}, d);
    of_parameters &= parameters.contains(in);
    if (!rows.contains(in)) continue;
    // A batch of one row that meets a parameter whose first dimension is 1 is connected with it.
    if (parameters.contains(in) && (of_weights || (!data && MeetsParameters(graph, at, sources)))) return kNoRows;
    return static_cast<int>(d);
  }
  const bool of_batch = several && node.outputs[0].shape[0] == 1;  // the same for all rows
  return of_weights || of_parameters || of_batch ? kNoRows : 0;
}

}  // namespace

void PlaceRandomRows(Graph& graph, int64_t ranks, int64_t place) {
  const auto random = [](const Node& n) { return n.op->random && n.outputs[0].rank() > 0; };
  if (std::none_of(graph.nodes.begin(), graph.nodes.end(), random)) return;
  const ConnectedDimensions dimensions(graph);
  const Sources sources(graph);
  absl::flat_hash_set<size_t> rows, parameters;
  bool several = true;
  const auto has_rows = [&](int32_t i) {
    rows.insert(dimensions.ClassOf({i, 0}, 0));
    several = several && graph.nodes[static_cast<size_t>(i)].outputs[0].shape[0] > 1;
  };
  for (const int32_t i : graph.Inputs()) {
    const Node& n = graph.nodes[static_cast<size_t>(i)];
    const size_t rank = n.outputs[0].shape.size();
    if (n.attrs.Str("kind") == kData && rank > 0) has_rows(i);
    if (n.attrs.Str("kind") != kParameter) continue;
    for (size_t d = 0; d < rank; ++d) parameters.insert(dimensions.ClassOf({i, 0}, d));
  }
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (mark::kRowsFirst.Has(graph.nodes[i].attrs)) has_rows(static_cast<int32_t>(i));
  }
  // By stream: a dropout's gradient draws the dropout's numbers again, so that its rows lie where the dropout's do. The
  // first node of a stream is the forward one.
  absl::flat_hash_map<int64_t, int> decided;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    Node& n = graph.nodes[i];
    if (!random(n)) continue;
    const auto [it, first] = decided.try_emplace(mark::kRng.Get(n.attrs), kNoRows);
    if (first) it->second = RowsOf(graph, static_cast<int32_t>(i), dimensions, rows, parameters, sources, several);
    const int dim = it->second;
    if (dim == kNoRows) continue;
    rows.insert(dimensions.ClassOf({static_cast<int32_t>(i), 0}, static_cast<size_t>(dim)));
    const Shape& shape = n.outputs[0].shape;
    std::vector<int64_t> begin(shape.size(), 0), global(shape.begin(), shape.end());
    begin[static_cast<size_t>(dim)] = place * shape[static_cast<size_t>(dim)];
    global[static_cast<size_t>(dim)] *= ranks;
    mark::kGlobal.Set(mark::kBegin.Set(n.attrs, std::move(begin)), std::move(global));
  }
}

}  // namespace mslua
