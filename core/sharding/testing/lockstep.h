// The programs of all ranks, run node by node in one thread with the reference kernels: what partitioned graphs are
// tested with. No communicator is involved, so hundreds of small worlds take seconds.
#pragma once

#include <string>
#include <vector>

#include "core/graph/graph.h"

namespace mslua::testing {

// `inputs[r]` are the bytes of the inputs of graph r, in the order of Graph::Inputs(). The graphs have the same
// operators in the same order; groups are of ranks 0 to graphs.size() - 1. Gives the bytes of every rank's outputs.
StatusOr<std::vector<std::vector<std::string>>> RunInLockstep(const std::vector<Graph>& graphs,
                                                              const std::vector<std::vector<std::string>>& inputs);

}  // namespace mslua::testing
