// The part of a training graph that strategies are for: backward follows it.
#pragma once

#include <vector>

#include "absl/types/optional.h"
#include "core/sharding/plan.h"
#include "core/sharding/sharding.h"

namespace mslua {

// The forward part of a graph: nodes that depend on no gradient and that another such node reads, or that read one; but
// for what parameters and state make for updates alone.
struct ForwardGraph {
  struct Edge {
    Value value;
    int32_t reader = -1;
    size_t input = 0;
    bool gradient = false;  // one flows back
  };
  // All edges between two nodes.
  struct Tie {
    int maker = 0, reader = 0;  // positions in `nodes`
    std::vector<int> edges;     // numbers
    int kind = 0;               // ties of one kind join nodes of equal kinds in the same way
  };
  std::vector<int32_t> nodes;   // in the graph's order
  std::vector<Edge> edges;      // by reader, then input
  std::vector<Tie> ties;        // by reader, then maker
  std::vector<int> kinds;       // by position in `nodes`: of one kind cost the same under the same sharding
  std::vector<NodeRule> rules;  // by node of the graph; of forward nodes
  std::vector<bool> data;       // by node: depends on data or scalars, not on parameters and constants alone
  std::vector<bool> remade;     // by node: made again on the way back (cell:recompute), not kept for it
  std::vector<bool> shared;     // by node: a parameter whose optimizer's state is sharded over all ranks
  bool shares_gradients = false, shares_parameters = false;  // of `shared` parameters: these too
  bool training = false;                                     // the graph has a backward part
  double states_per_parameter = 0;  // bytes of optimizer state and other state for a byte of parameters
};
StatusOr<ForwardGraph> ForwardOf(const Graph& graph,
                                 const absl::optional<PropagateOptions::OptimizerShards>& shards = absl::nullopt);

}  // namespace mslua
