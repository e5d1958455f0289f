// Strategy search (search_mode): a sharding for every forward node of a graph, of least predicted cost.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/types/optional.h"
#include "core/sharding/plan.h"
#include "core/sharding/search/cluster.h"

namespace mslua {

enum class SearchMode {
  // The least time of all plans whose factors take their axes in the mesh's order: exact while no table passes
  // max_entries, else the best of what the relaxation suggests and of one axis after the other, improved axis by axis,
  // in the end in other orders too.
  kDynamicProgramming,
  // One axis of the mesh after the other, each exactly; then sweeps over the axes until none gets better.
  kRecursiveProgramming,
  // Nodes that depend on data are sharded over as many devices as they allow; of those plans the one that reshards the
  // fewest bytes on the way forward (sums of partial values aside), of equals the one that moves and keeps the fewest.
  // Users' strategies spread from where they are.
  kShardingPropagation,
};
// "dynamic_programming", ...
const char* Name(SearchMode mode);
StatusOr<SearchMode> ParseSearchMode(absl::string_view name);

struct SearchOptions {
  SearchMode mode = SearchMode::kDynamicProgramming;
  Cluster cluster;
  // How data arrive, and inputs with a settled layout. Users' strategies are attributes of the nodes.
  PropagateOptions propagate;
  double max_entries = 1e8;  // of a table
  // A node and a sharding that it must not have: what the runner-up costs.
  absl::optional<std::pair<int32_t, Sharding>> without;
};

struct SearchResult {
  // By node: what PropagateOptions::chosen takes. Empty for backward nodes.
  std::vector<absl::optional<Sharding>> chosen;
  // Predicted, of a step.
  double seconds = 0, compute_seconds = 0;
  int64_t bytes = 0;         // received by a device
  int64_t memory_bytes = 0;  // of a device
  // No plan that was allowed takes less; seconds / bound - 1 is the gap, of kShardingPropagation too,
  // which minimises something else.
  double bound_seconds = 0, gap = 0;
  bool exact = false;  // proven to be the minimum of what the mode minimises
  int nodes = 0;
  int64_t candidates = 0;     // shardings of all nodes together
  double largest_table = 0;   // entries
  double search_seconds = 0;  // wall clock
};

// The same on every rank: no clock decides. Micro-batches (micro_batches.h) are all sharded as the first, and the
// memory is that of one of them. Errors: as Propagate; RESOURCE_EXHAUSTED when no plan fits the memory.
StatusOr<SearchResult> Search(const Graph& graph, const Mesh& mesh, const SearchOptions& options);

}  // namespace mslua
