// Pipeline stages: which stage makes each value of a traced step.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "core/graph/graph.h"

namespace mslua {

// No stage in particular: data, constants and what follows from them alone, which each stage makes for itself.
inline constexpr int kNoStage = -1;

// Nodes [begin, end) of a traced step: a micro-batch on its way forward or back.
struct MicroBlock {
  int32_t begin = 0, end = 0;
  int64_t micro = 0;
  bool backward = false;
};

// What a trace says of stages.
struct StageTrace {
  int stages = 1;
  std::vector<int> cells;          // by node: the stage of the innermost cell that has one, or kNoStage
  std::vector<MicroBlock> blocks;  // in the order of the nodes
};

// The stages of parameters and state, by name: where they are kept and updated.
using StageOwners = absl::flat_hash_map<std::string, int>;

// The stage of every node:
//  - of a node traced in a cell with a stage: that;
//  - of a forward node elsewhere: the latest of its inputs' stages; of one that depends on parameters alone: the first
//    that reads it;
//  - of a backward node (attribute _origin): that of the forward node it comes from; of a sum of gradients (_sum): the
//    earliest of its inputs' stages, for gradients travel from later stages to earlier ones;
//  - of a parameter or state: as `settled` says, else the first that reads it.
// Errors name the cell: a stage that there is not, stages without a node, a stage that reads what a later one makes.
StatusOr<std::vector<int>> StagesOf(const Graph& graph, const StageTrace& trace, const StageOwners& settled);

// The owners that these stages give.
StageOwners OwnersOf(const Graph& graph, const std::vector<int>& stages);

}  // namespace mslua
