// Which all_reduces travel in one message, and when: gradient buckets (docs/howto/data_parallel.md).
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "core/graph/graph.h"

namespace mslua {

// How gradients are gathered in buckets, in the order in which the backward pass makes them.
struct BucketRule {
  // By size: a bucket is closed before the gradient that would make it larger than this; 0: no limit.
  int64_t bytes = int64_t{64} << 20;
  // By count, where not empty: {20, 35} is [0, 20), [20, 35), [35, ...).
  std::vector<int64_t> segments;
};

struct BucketMember {
  DType dtype = DType::kF32;
  int64_t bytes = 0;
  int64_t fusion = 1;  // the parameter's comm_fusion: different ones never share a bucket; 0: alone
};

// The bucket, from 0, of each member; members are in the order of the backward pass. Element types do not mix.
std::vector<int64_t> AssignBuckets(const BucketRule& rule, absl::Span<const BucketMember> members);

// Marks every collective with its number (kCalls and kBegins of core/op/marks.h). Before the other passes: a rank's
// part has constants of its own, and what they make equal is one node there and two on another rank.
Graph NumberCollectives(const Graph& graph);

// Makes all_reduce nodes of equal, positive `fusion` (and operation, element type and group) one all_reduce_start as
// early as their inputs are known and one all_reduce_wait as late as its results are needed; all_gather and
// reduce_scatter nodes along the first dimension likewise one such node, whose `_members` says how many they were. A
// node whose input comes after a reader of the others' results stays apart. They begin in the order of their numbers,
// which is that of all ranks of a group.
Graph BucketCollectives(const Graph& graph);

}  // namespace mslua
