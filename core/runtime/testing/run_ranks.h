// Runs one graph a rank, ranks as threads of this process.
#pragma once

#include <string>
#include <vector>

#include "core/graph/graph.h"
#include "core/runtime/executable.h"

namespace mslua::testing {

struct RankProgram {
  Graph graph;
  std::vector<std::string> inputs;  // bytes, in the order of Graph::Inputs(); all kinds
};

// The bytes of every rank's outputs: by rank and output.
using RankOutputs = std::vector<std::vector<std::string>>;

// Compiles and runs program r as rank r of a world of that many ranks, with the options given (`groups` and `rank` are
// set here). Gives the outputs after each of `steps` runs. Errors: the first rank's that has one.
StatusOr<std::vector<RankOutputs>> RunRanksByStep(const std::vector<RankProgram>& programs,
                                                  const CompileOptions& options, int steps);
// The same; gives the outputs after the last run.
StatusOr<RankOutputs> RunRanks(const std::vector<RankProgram>& programs, const CompileOptions& options = {},
                               int steps = 1);

}  // namespace mslua::testing
