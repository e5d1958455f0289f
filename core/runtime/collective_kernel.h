// Kernels of the operators between ranks (core/ops/ranks), over the rank's groups.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "collectives/communicator.h"
#include "collectives/groups.h"
#include "core/graph/graph.h"
#include "core/op/kernel.h"

namespace mslua {

// The bytes of scratch memory that the kernel of a collective node needs while it runs.
int64_t CollectiveScratch(const Graph& graph, const Node& node);

// Calls of one program that have begun and are not yet waited for.
class StartedCalls {
 public:
  struct Started {
    Communicator* group = nullptr;
    Handle handle;
    bool running = false;
  };

  bool any() const { return running_ > 0; }
  // Does what can be done for them now: between nodes.
  Status Progress();

  // The call of that all_reduce_start or stage_send; stays where it is.
  Started* Of(int32_t start) { return &calls_[start]; }
  Status Start(Started* mine, const Call& call);
  Status Wait(Started* mine);

 private:
  std::map<int32_t, Started> calls_;
  int running_ = 0;
};

// One dimension of a row-major tensor in `parts`: [outer, parts, block] against [parts, outer, block], blocks in bytes.
struct Split {
  int64_t outer = 1, parts = 1, block = 0;
  bool dense() const { return outer == 1 || parts == 1; }  // both orders are the same
  int64_t bytes() const { return outer * parts * block; }
};
// Whether the ranks' blocks follow one another in the call's buffers: all_gather, reduce_scatter, all_to_all. SplitsOf
// gives them in what the node reads and in what it makes.
bool MovesBlocks(const Node& node);
std::pair<Split, Split> SplitsOf(const Graph& graph, const Node& node);

// "train.lua:88 Net/fc1 all_reduce"; of a node that a pass has made, where the first of its inputs comes from.
std::string SourceOf(const Graph& graph, const Node& node);

// The call of a node that is one: all_reduce, all_reduce_start, reduce, broadcast, and the nodes that move blocks.
// Without buffers.
Call CallOf(const Graph& graph, const Node& node);

// The kernel of a collective node whose group has more than one rank. Makes the group where it is new: all its ranks
// prepare the same nodes in the same order. InvalidArgument where `groups` is null (a job of one rank).
// `calls` outlives the kernel.
StatusOr<std::unique_ptr<Kernel>> MakeCollectiveKernel(const Graph& graph, int32_t node, Groups* groups,
                                                       StartedCalls* calls);

}  // namespace mslua
