// Where every value of a graph lies during a step: one arena with reuse, the store in place, nothing allocated later.
#pragma once

#include <vector>

#include "core/graph/graph.h"

namespace mslua {

struct Placement {
  enum Kind : uint8_t {
    kArena,     // at `offset` of the workspace
    kShared,    // at `offset` of the memory that other ranks reach
    kStore,     // the memory of input node `input`: the input itself, or an update written in place
    kExternal,  // a data input: bound before each run
    kScalar,    // a scalar input: the executable's own
    kConstant,  // filled once: at `offset` of the constants
    kOutput,    // at `offset` of the outputs, which no other program writes over
  };
  Kind kind = kArena;
  int64_t offset = 0;
  int32_t input = -1;
  bool update = false;  // kStore: the new value, which a step may write beside the old one
};

struct MemoryPlan {
  std::vector<std::vector<Placement>> values;  // [node][output]
  std::vector<int64_t> scratch;                // [node]: offset of its scratch in the workspace, -1: none
  int64_t workspace_bytes = 0;
  int64_t shared_bytes = 0;
  int64_t constant_bytes = 0;
  int64_t output_bytes = 0;
  int64_t sum_of_value_bytes = 0;
  int64_t in_place = 0;
  // [node][output]: where the guard bytes behind a value begin, -1: it has none. Empty without guards.
  std::vector<std::vector<int64_t>> guards;
  // Graph outputs whose value must be copied over the input they update when the step is done.
  std::vector<int> copies;
  // Those that update nothing, and lie in the store where the step writes another value: to be copied elsewhere before.
  std::vector<int> kept;
};

// Bytes between the tensors of an all_reduce_start, which lie one after the other and travel as one buffer.
int64_t BucketStride(const TensorType& type);

// Plans for nodes that run in the graph's order. `scratch_bytes[node]` is what its kernel needs while it runs.
// Graph outputs that update nothing keep their memory until the program runs again, or another one in the workspace;
// those of up to `apart_bytes` lie apart from it. With `share`, what else collectives touch lies in the shared memory,
// which any program of the ranks writes over. The tensors of a bucket are made where it lies, so that nothing is
// copied. `guard`: so many bytes that nothing else has lie behind each piece of the workspace.
MemoryPlan PlanMemory(const Graph& graph, const std::vector<int64_t>& scratch_bytes, bool share = false,
                      int64_t guard = 0, int64_t apart_bytes = 0);

}  // namespace mslua
