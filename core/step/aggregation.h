// Gradients of ranks that each see a part of the batch: combined over the ranks.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/graph/builder.h"
#include "core/passes/buckets.h"
#include "core/step/optimizer_shards.h"
#include "core/step/parameter.h"

namespace mslua {

struct Aggregation {
  std::vector<int64_t> ranks;  // of the world; empty: each rank's gradients are its own
  bool mean = false;           // the ranks' mean instead of their sum
  bool fp32_sync = true;       // of sync_type.h
  BucketRule buckets;

  bool on() const { return !ranks.empty(); }
  // Whether this parameter's gradient is combined.
  bool Covers(const ParameterData& p) const { return on() && !p.layerwise_parallel; }
};

// Replaces the gradients that are covered and not in slices. Buckets follow the order in which the graph makes the
// gradients.
void Aggregate(GraphBuilder& g, const Aggregation& how, const OptimizerShards& shards,
               const std::vector<std::shared_ptr<ParameterData>>& parameters, std::vector<Value>* gradients);

// Gives the random operators of rank `place` of `ranks` the numbers of its rows, so that a rank's part of the global
// batch meets what it would meet in the whole. Rows are the first dimension of what data inputs bring, and each
// dimension that the operators' rules connect with it. A random operator over parameters alone, noise of weights, is
// the same on each rank; so is one whose first dimension is 1 where batches, and micro-batches, have several rows. Of
// another one that no rule connects with either, rows are the first dimension.
void PlaceRandomRows(Graph& graph, int64_t ranks, int64_t place);

}  // namespace mslua
