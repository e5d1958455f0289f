// Sharded updates (enable_parallel_optimizer): of a parameter seen as a flat list of elements each rank combines the
// gradients, keeps the optimizer's state and makes the update of one slice, and the slices are gathered. Any shape, any
// optimizer, any number of ranks: the last slice is filled up with zeros.
#pragma once

#include <vector>

#include "core/graph/builder.h"
#include "lua/parameter.h"

namespace mslua {

struct OptimizerShards {
  std::vector<int64_t> ranks;  // of the world, which share a parameter's slices; empty: updates are not sharded
  int64_t place = 0;           // of this rank among them
  // The ranks of all such groups that have this rank's slice; their gradients are combined too.
  std::vector<int64_t> replicas;
  bool mean = false;                      // of gradients: the ranks' mean instead of their sum
  bool fp32_sync = true;                  // 16-bit gradients are summed in f32
  int64_t threshold = int64_t{64} << 10;  // bytes: smaller parameters stay whole
  bool accumulate = true;                 // gradients of micro-batches are combined one by one, into slices

  bool Covers(const ParameterData& p) const;
  // Elements of each rank's slice.
  int64_t Slice(const TensorType& whole) const;
  // The first element of this rank's.
  int64_t Begin(const TensorType& whole) const { return place * Slice(whole); }
};

// This rank's slice of the combined gradients.
Value ScatterGradient(GraphBuilder& g, const OptimizerShards& shards, Value gradient);
// This rank's slice of a tensor that all ranks have.
Value OwnSlice(GraphBuilder& g, const OptimizerShards& shards, Value whole);
// The tensor of `type` whose slices the ranks have.
Value GatherSlices(GraphBuilder& g, const OptimizerShards& shards, Value slice, const TensorType& type);

}  // namespace mslua
