#include "core/step/aggregation.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "core/op/marks.h"
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

void PlaceRandomRows(Graph& graph, int64_t ranks, int64_t place) {
  for (Node& n : graph.nodes) {
    if (!n.op->random || n.outputs[0].rank() == 0) continue;
    const Shape& shape = n.outputs[0].shape;
    std::vector<int64_t> begin(shape.size(), 0), global(shape.begin(), shape.end());
    begin[0] = place * shape[0];
    global[0] *= ranks;
    mark::kGlobal.Set(mark::kBegin.Set(n.attrs, std::move(begin)), std::move(global));
  }
}

}  // namespace mslua
