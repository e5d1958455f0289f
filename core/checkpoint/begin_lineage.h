// Where the lineage of a training begins: what it finds in the directories that it saves into.
#pragma once

#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/checkpoint/lineage.h"

namespace mslua::checkpoint {

// What a training that saves into `directories` counts its saves from: `run` and `forks` are those of all its
// checkpoints, the first one's generation is one more, and `parent` is its parent. `resumed_from`: the folder of the
// checkpoint that it resumes from; empty: none. Without newer checkpoints in `directories` of the lineage that it
// resumes the run continues, else, and without one, a run begins. Directories that are not there are empty, and so is a
// checkpoint that only other hosts have.
StatusOr<Lineage> BeginLineage(const std::vector<std::string>& directories, const std::string& resumed_from);

// The folder of the checkpoint in `directories` that the training `run` (Lineage::run) saved last; empty: it has none.
std::string NewestOfRun(const std::vector<std::string>& directories, const std::string& run);

// The folder of the newest checkpoint in `directory` that a run saved which the checkpoint `resumed_from` came from, or
// which came from that one's run; empty: there is none, or `resumed_from` cannot be read.
std::string NewestOfFamily(const std::string& directory, const std::string& resumed_from);

}  // namespace mslua::checkpoint
