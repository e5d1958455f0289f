// A step that goes through its batch in micro-batches (accumulate_steps, nn.PipelineCell) repeats the forward part once
// for each. All of them are sharded alike, so a search looks at the first one alone: the repetitions share their
// parameters, which makes an exact search of all of them together too large.
#pragma once

#include <vector>

#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "core/graph/graph.h"
#include "core/sharding/stages.h"

namespace mslua {

// Marks the nodes of forward blocks (mark::kMicroBatch), inputs aside. Nothing where there is one micro-batch.
void MarkMicroBatches(absl::Span<const MicroBlock> blocks, Graph* graph);

struct FirstMicroBatch {
  Graph graph;              // without the other micro-batches, and without what depends on them
  std::vector<int32_t> of;  // by node of the whole graph: the node of `graph` that it is or repeats, or -1
};
// Nothing where the graph has one micro-batch, or where one of them does not repeat the first.
absl::optional<FirstMicroBatch> FirstMicroBatchOf(const Graph& graph);

}  // namespace mslua
