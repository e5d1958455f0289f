// The program of one rank: the nodes of a sharded graph on their shards, with collectives where layouts differ.
#pragma once

#include "core/sharding/plan.h"

namespace mslua {

// `graph` as `rank` runs it. All ranks of the mesh get the same nodes; they differ in the attributes that say which
// part is meant (localize, groups, slices). Inputs and outputs keep their names; an input lies as the plan says, an
// output that updates an input lies as that one, any other output is whole. Messages of gradients and updates have
// mark::kGradientOf.
StatusOr<Graph> Partition(const Graph& graph, const ShardPlan& plan, Resharder& resharder, int64_t rank);

}  // namespace mslua
