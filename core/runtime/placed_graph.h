// What executables of every device have in common: reports of a memory plan, and names for errors.
#pragma once

#include <string>
#include <vector>

#include "core/graph/graph.h"
#include "core/runtime/executable.h"
#include "core/runtime/memory_plan.h"

namespace mslua {

// What a memory plan of a graph takes.
PlanReport ReportOf(const Graph& graph, const MemoryPlan& plan, int64_t kernels);
// Whether a node has no kernel: what it gives is there before the step, or lies where its operand does.
bool IsPassive(const Node& n);
// The pieces of the workspace. `scratch`: bytes of each node's kernel.
std::vector<ArenaEntry> ArenaOf(const Graph& graph, const MemoryPlan& plan, const std::vector<int64_t>& scratch);
// "recipe.lua:12: Net/conv1", as errors begin.
std::string WhereOf(const Node& n);

}  // namespace mslua
