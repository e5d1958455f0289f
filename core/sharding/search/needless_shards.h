// Factors that no plan needs to shard.
#pragma once

#include "core/sharding/search/cost.h"

namespace mslua {

// Marks factors whole along which no plan is better for sharding them: those of an operator that only moves data, has
// one maker and one reader, and of which neither can shard the factor. If it was sharded, the data would come and go
// between the layouts of these two, which costs no less than going at once, before the operator or after it; what a
// smaller part saves in memory traffic the links take to put it together. So that an attention's transposes are sharded
// by batch and heads. `keeps`, by node: is left as it is.
void LeaveWhole(const Graph& graph, const Mesh& mesh, const Cluster& cluster, const std::vector<bool>& keeps,
                ForwardGraph* forward);

}  // namespace mslua
