#include "core/step/optimizer_shards.h"

#include <algorithm>
#include <map>
#include <string>

#include "core/base/round_up.h"
#include "core/step/sync_type.h"

namespace mslua {
namespace {

Value Pad(GraphBuilder& g, Value flat, int64_t size) {
  const int64_t missing = size - g.TypeOf(flat).shape[0];
  return missing == 0 ? flat : g.Op("pad", {flat}, {{"high", std::vector<int64_t>{missing}}});
}

Value Slice(GraphBuilder& g, Value flat, int64_t begin, int64_t end) {
  if (begin == 0 && end == g.TypeOf(flat).shape[0]) return flat;
  return g.Op("strided_slice", {flat}, {{"begin", std::vector<int64_t>{begin}}, {"end", std::vector<int64_t>{end}}});
}

// Numbers of `fusion` for the slices of parameters, in their order here; all 0 without a rule.
std::vector<int64_t> FusionsOf(const absl::optional<BucketRule>& rule, const std::vector<BucketMember>& members,
                               int64_t first) {
  if (!rule) return std::vector<int64_t>(members.size(), 0);
  std::vector<int64_t> fusions = AssignBuckets(*rule, members);
  for (int64_t& f : fusions) f += first;
  return fusions;
}

}  // namespace

bool OptimizerShards::Covers(const ParameterData& p) const {
  return !ranks.empty() && p.parallel_optimizer && !p.layerwise_parallel && p.type.bytes() >= threshold;
}

int64_t OptimizerShards::Slice(const TensorType& whole) const {
  const auto n = static_cast<int64_t>(ranks.size());
  return CeilDiv(whole.elements(), n);
}

void ScatterGradients(GraphBuilder& g, const OptimizerShards& shards,
                      const std::vector<std::shared_ptr<ParameterData>>& parameters, int64_t pass,
                      std::vector<Value>* gradients) {
  std::vector<size_t> order;  // of the backward pass
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (shards.Covers(*parameters[i])) order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return (*gradients)[a].node < (*gradients)[b].node; });
  const auto n = static_cast<int64_t>(shards.ranks.size());
  std::map<size_t, DType> dtypes;
  std::vector<Value> flats;
  std::vector<BucketMember> members;
  for (size_t i : order) {
    const TensorType type = g.TypeOf((*gradients)[i]);
    dtypes[i] = type.dtype;
    const Value d = ToSync(g, (*gradients)[i], shards.fp32_sync);
    flats.push_back(Pad(g, Reshape(g, d, {type.elements()}), n * shards.Slice(type)));
    members.push_back({g.TypeOf(d).dtype, g.TypeOf(flats.back()).bytes(), parameters[i]->comm_fusion});
  }
  const auto count = static_cast<int64_t>(order.size());
  const std::vector<int64_t> fusions = FusionsOf(shards.scatter, members, kFirstBucket + pass * count);
  const std::string op = shards.mean ? "mean" : "sum";
  for (size_t k = 0; k < order.size(); ++k) {
    (*gradients)[order[k]] =
        g.Op("reduce_scatter", {flats[k]}, {{"group", shards.ranks}, {"op", op}, {"fusion", fusions[k]}});
  }
  for (size_t i : order) {
    Value& d = (*gradients)[i];
    // Means over equally many ranks: their mean is that of all.
    if (shards.replicas.size() > 1) d = g.Op("all_reduce", {d}, {{"group", shards.replicas}, {"op", op}});
    d = Cast(g, d, dtypes[i]);
  }
}

Value OwnSlice(GraphBuilder& g, const OptimizerShards& shards, Value whole) {
  const TensorType type = g.TypeOf(whole);
  const int64_t size = shards.Slice(type), elements = type.elements();
  const int64_t begin = std::min(shards.Begin(type), elements), end = std::min(begin + size, elements);
  if (begin == end) return g.Constant(0, type.dtype, {size});
  return Pad(g, Slice(g, Reshape(g, whole, {elements}), begin, end), size);
}

void GatherSlices(GraphBuilder& g, const OptimizerShards& shards,
                  const std::vector<std::shared_ptr<ParameterData>>& parameters, std::vector<Value>* values) {
  std::vector<size_t> covered;
  std::vector<BucketMember> members;
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (!shards.Covers(*parameters[i])) continue;
    covered.push_back(i);
    const TensorType slice = g.TypeOf((*values)[i]);
    members.push_back({slice.dtype, slice.bytes(), parameters[i]->comm_fusion});
  }
  const std::vector<int64_t> fusions = FusionsOf(shards.gather, members, kFirstBucket);
  for (size_t k = 0; k < covered.size(); ++k) {
    Value& v = (*values)[covered[k]];
    v = g.Op("all_gather", {v}, {{"group", shards.ranks}, {"fusion", fusions[k]}});
  }
  for (size_t i : covered) {
    const TensorType& type = parameters[i]->type;
    (*values)[i] = Reshape(g, Slice(g, (*values)[i], 0, type.elements()), type.shape);
  }
}

}  // namespace mslua
