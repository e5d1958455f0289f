// The sharding of every node of a graph: what users and the search say, and what follows from it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/types/optional.h"
#include "core/sharding/reshard.h"
#include "core/sharding/strategy.h"

namespace mslua {

struct ShardPlan {
  std::vector<NodeRule> rules;      // by node
  std::vector<Sharding> shardings;  // by node; of an input node: its layout

  Layout Input(int32_t node, size_t i) const;
  Layout Output(Value v) const;
};

struct PropagateOptions {
  // The layout in which a data input arrives; none: its first dimension is sharded over all ranks, as far as it
  // divides.
  std::function<StatusOr<Layout>(const std::string& name, const TensorType& type)> data_layout;
  // Layouts of inputs that are settled: parameters and state that another graph has laid out.
  absl::flat_hash_map<std::string, Layout> fixed;
  // Shards the optimizer's state of parameters of at least `bytes` bytes, and their updates, also over the axes along
  // which the parameter is replicated (enable_parallel_optimizer); state is an input "<name>.<parameter>" of the
  // parameter's shape. `except`: parameters that are left out.
  struct OptimizerShards {
    int64_t bytes = 0;
    absl::flat_hash_set<std::string> except;
    bool sums = true;         // sums of gradients over micro-batches (mark::kMicroSum) are sharded alike
    bool parameters = false;  // the parameters too: gathered where they are read, and again on the way back
  };
  absl::optional<OptimizerShards> optimizer_shards;
  // Forward nodes without a strategy lie as their inputs do, and are not sharded along the batch of their own accord: a
  // user has said how data lies.
  bool as_data = false;
  // Shardings that a search has chosen, by node; absent or empty: none. Users' strategies win: of those a choice says
  // the axes.
  std::vector<absl::optional<Sharding>> chosen;
};

// Gives every node a sharding:
//  - of a user's strategy (attribute _in_strategy), with the mesh axes that suit its neighbours best;
//  - as chosen by a search;
//  - forward nodes without either: sharded along the batch, if they have one, else as their inputs lie;
//  - nodes that depend on parameters or constants alone, and parameters: as their consumer wants them;
//  - backward nodes (attribute _origin, from Gradients): as the forward node they come from;
//  - the rest (updates): as the parameters and state they read.
// Errors: a bad strategy; a parameter that two users' strategies shard differently.
StatusOr<ShardPlan> Propagate(const Graph& graph, Resharder& resharder, const PropagateOptions& options);

// The layout with the axes that replicate added to the first dimensions that they divide.
Layout Finest(const Mesh& mesh, Layout layout, const Shape& shape);

// The first dimension sharded over all axes that divide it, in order.
Layout BatchLayout(const Mesh& mesh, const TensorType& type);

// The graph with the strategy of each node as its attribute in_strategy: for dumps.
Graph Annotated(const Graph& graph, const ShardPlan& plan, const Mesh& mesh);

}  // namespace mslua
