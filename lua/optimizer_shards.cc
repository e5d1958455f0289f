#include "lua/optimizer_shards.h"

#include <algorithm>

namespace mslua {
namespace {

Value Pad(GraphBuilder& g, Value flat, int64_t size) {
  const int64_t missing = size - g.TypeOf(flat).shape[0];
  return missing == 0 ? flat : g.Op("pad", {flat}, {{"high", std::vector<int64_t>{missing}}});
}

Value Cut(GraphBuilder& g, Value flat, int64_t begin, int64_t end) {
  if (begin == 0 && end == g.TypeOf(flat).shape[0]) return flat;
  return g.Op("strided_slice", {flat}, {{"begin", std::vector<int64_t>{begin}}, {"end", std::vector<int64_t>{end}}});
}

}  // namespace

bool OptimizerShards::Covers(const ParameterData& p) const {
  return !ranks.empty() && p.parallel_optimizer && !p.layerwise_parallel && p.type.bytes() >= threshold;
}

int64_t OptimizerShards::Slice(const TensorType& whole) const {
  const auto n = static_cast<int64_t>(ranks.size());
  return (whole.elements() + n - 1) / n;
}

Value ScatterGradient(GraphBuilder& g, const OptimizerShards& shards, Value gradient) {
  const TensorType type = g.TypeOf(gradient);
  if (shards.fp32_sync && SizeOf(type.dtype) == 2) gradient = Cast(g, gradient, DType::kF32);
  const auto n = static_cast<int64_t>(shards.ranks.size());
  const Value flat = Pad(g, Reshape(g, gradient, {type.elements()}), n * shards.Slice(type));
  const std::string op = shards.mean ? "mean" : "sum";
  Value slice = g.Op("reduce_scatter", {flat}, {{"group", shards.ranks}, {"op", op}});
  // Means over equally many ranks: their mean is that of all.
  if (shards.replicas.size() > 1) slice = g.Op("all_reduce", {slice}, {{"group", shards.replicas}, {"op", op}});
  return Cast(g, slice, type.dtype);
}

Value OwnSlice(GraphBuilder& g, const OptimizerShards& shards, Value whole) {
  const TensorType type = g.TypeOf(whole);
  const int64_t size = shards.Slice(type), elements = type.elements();
  const int64_t begin = std::min(shards.Begin(type), elements), end = std::min(begin + size, elements);
  if (begin == end) return g.Constant(0, type.dtype, {size});
  return Pad(g, Cut(g, Reshape(g, whole, {elements}), begin, end), size);
}

Value GatherSlices(GraphBuilder& g, const OptimizerShards& shards, Value slice, const TensorType& type) {
  const Value all = g.Op("all_gather", {slice}, {{"group", shards.ranks}});
  return Reshape(g, Cut(g, all, 0, type.elements()), type.shape);
}

}  // namespace mslua
