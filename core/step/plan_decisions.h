// The decisions of a training step's plan: those of the checkpoint that a run resumes from, else those in
// the user's plan cache, else measured now, where set_context{tune = true} asks for that; else the usual ones.
#pragma once

#include <string>
#include <vector>

#include "core/passes/decisions.h"
#include "core/runtime/executable.h"

namespace mslua {

// For the graphs of a step, one for each shape of a batch.
// To be called on all ranks of `together` (null: this rank trains by itself): rank 0 decides, and all have the same,
// but for choices of libraries: a rank takes those for its own machine. `resumed` is the RunState::plan of the
// checkpoint that the run resumes from; empty: none. A damaged one, or one of another machine, is used as far as it
// goes, and a line on stderr says so. `machine`: what the bits of a step depend on besides its decisions:
// ProcessorText(), or a device and its libraries.
StatusOr<Decisions> DecidePlan(const std::vector<const Graph*>& graphs, const PassOptions& options, bool tune,
                               Groups* together, const std::string& resumed, const std::string& machine);

// What a checkpoint keeps: the machine and the decisions.
std::string PlanText(const Decisions& decisions, const std::string& machine);

// "2 threads on avx512f avx2 fma".
std::string ProcessorText();

// What decisions depend on besides the graph: this build, the processor's instruction sets, the compute threads, the
// libraries.
std::string PlanMachine();

}  // namespace mslua
