// Sharded updates (enable_parallel_optimizer): of a parameter seen as a flat list of elements each rank combines the
// gradients, keeps the optimizer's state and makes the update of one slice, and the slices are gathered. Any shape, any
// optimizer, any number of ranks: the last slice is filled up with zeros.
#pragma once

#include <vector>

#include "absl/types/optional.h"
#include "core/graph/builder.h"
#include "core/passes/buckets.h"
#include "core/step/parameter.h"

namespace mslua {

// Numbers of `fusion` from here on are the trainer's messages; users' own are below.
constexpr int64_t kFirstBucket = int64_t{1} << 16;

struct OptimizerShards {
  std::vector<int64_t> ranks;  // of the world, which share a parameter's slices; empty: updates are not sharded
  int64_t place = 0;           // of this rank among them
  // The ranks of all such groups that have this rank's slice; their gradients are combined too.
  std::vector<int64_t> replicas;
  bool mean = false;                      // of gradients: the ranks' mean instead of their sum
  bool fp32_sync = true;                  // of sync_type.h
  int64_t threshold = int64_t{64} << 10;  // bytes: smaller parameters stay whole
  bool accumulate = true;                 // gradients of micro-batches are combined one by one, into slices
  // How slices travel together: gradients on their way to them, and parameters from them. Null: each alone.
  absl::optional<BucketRule> scatter, gather;

  bool Covers(const ParameterData& p) const;
  // Elements of each rank's slice.
  int64_t Slice(const TensorType& whole) const;
  // The first element of this rank's.
  int64_t Begin(const TensorType& whole) const { return place * Slice(whole); }
};

// Replaces the gradients of covered parameters by this rank's slices of the combined ones. `pass` counts the backward
// passes of a step: gradients of different passes do not travel together.
void ScatterGradients(GraphBuilder& g, const OptimizerShards& shards,
                      const std::vector<std::shared_ptr<ParameterData>>& parameters, int64_t pass,
                      std::vector<Value>* gradients);
// This rank's slice of a tensor that all ranks have.
Value OwnSlice(GraphBuilder& g, const OptimizerShards& shards, Value whole);
// Replaces this rank's slices of covered parameters by the whole tensors.
void GatherSlices(GraphBuilder& g, const OptimizerShards& shards,
                  const std::vector<std::shared_ptr<ParameterData>>& parameters, std::vector<Value>* values);

}  // namespace mslua
