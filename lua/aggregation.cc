#include "lua/aggregation.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "lua/object.h"

namespace mslua {
namespace {

StatusOr<std::vector<int64_t>> FieldInts(lua_State* L, int index, const char* name,
                                         absl::string_view what = "aggregate") {
  const StackGuard guard(L);
  lua_getfield(L, index, name);
  if (lua_isnil(L, -1)) return std::vector<int64_t>();
  return ReadInts(L, -1, absl::StrCat(what, ": ", name));
}

}  // namespace

StatusOr<BucketRule> ReadBucketRule(lua_State* L, int index, absl::string_view what) {
  BucketRule rule;
  ASSIGN_OR_RETURN(rule.bytes, FieldInt(L, index, "bucket_bytes", rule.bytes));
  ASSIGN_OR_RETURN(rule.segments, FieldInts(L, index, "segments", what));
  return rule;
}

StatusOr<Aggregation> ReadAggregation(lua_State* L, int index, OptimizerShards* shards) {
  const StackGuard guard(L);
  Aggregation a;
  lua_getfield(L, index, "aggregate");
  if (lua_isnil(L, -1)) return a;
  const int at = lua_gettop(L);
  RETURN_IF_ERROR(
      CheckFields(L, at, "aggregate", {"ranks", "mean", "fp32_sync", "bucket_bytes", "segments", "shards"}));
  ASSIGN_OR_RETURN(a.ranks, FieldInts(L, at, "ranks"));
  ASSIGN_OR_RETURN(a.mean, FieldBool(L, at, "mean", false));
  ASSIGN_OR_RETURN(a.fp32_sync, FieldBool(L, at, "fp32_sync", true));
  ASSIGN_OR_RETURN(a.buckets, ReadBucketRule(L, at, "aggregate"));
  lua_getfield(L, at, "shards");
  if (lua_isnil(L, -1)) return a;
  const int part = lua_gettop(L);
  RETURN_IF_ERROR(
      CheckFields(L, part, "aggregate: shards",
                  {"ranks", "place", "replicas", "threshold", "accumulate", "scatter_bytes", "gather_bytes"}));
  ASSIGN_OR_RETURN(shards->ranks, FieldInts(L, part, "ranks"));
  ASSIGN_OR_RETURN(shards->replicas, FieldInts(L, part, "replicas"));
  shards->mean = a.mean;
  shards->fp32_sync = a.fp32_sync;
  ASSIGN_OR_RETURN(shards->place, FieldInt(L, part, "place", 0));
  ASSIGN_OR_RETURN(shards->threshold, FieldInt(L, part, "threshold", shards->threshold));
  ASSIGN_OR_RETURN(shards->accumulate, FieldBool(L, part, "accumulate", true));
  const auto rule = [&](const char* name, absl::optional<BucketRule>* into) -> Status {
    ASSIGN_OR_RETURN(const int64_t bytes, FieldInt(L, part, name, -1));
    if (bytes < 0) return absl::OkStatus();
    into->emplace();
    (*into)->bytes = bytes;
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(rule("scatter_bytes", &shards->scatter));
  RETURN_IF_ERROR(rule("gather_bytes", &shards->gather));
  return a;
}

void Aggregate(GraphBuilder& g, const Aggregation& how, const OptimizerShards& shards,
               const std::vector<std::shared_ptr<ParameterData>>& parameters, std::vector<Value>* gradients) {
  std::vector<size_t> order;  // of the backward pass
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (how.Covers(*parameters[i]) && !shards.Covers(*parameters[i])) order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return (*gradients)[a].node < (*gradients)[b].node; });
  std::vector<BucketMember> members;
  for (size_t i : order) {
    TensorType type = g.TypeOf((*gradients)[i]);
    if (how.fp32_sync && SizeOf(type.dtype) == 2) type.dtype = DType::kF32;
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
        "all_reduce", {Cast(g, d, members[k].dtype)},
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
    n.attrs.Set("_begin", std::move(begin)).Set("_global", std::move(global));
  }
}

}  // namespace mslua
