// Measures small graphs: what decisions of a plan are made by (core/passes/decisions.h).
#pragma once

#include "core/graph/graph.h"

namespace mslua {

// Seconds of one run of `graph` as it is (no passes), warm: the least of a few runs, with this thread's compute
// threads. Its inputs are data, which it makes up.
StatusOr<double> SecondsOf(const Graph& graph);

}  // namespace mslua
