// Where ranks that train together save their checkpoints. Each call is made by all ranks of the world.
#pragma once

#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/checkpoint/lineage.h"

namespace mslua {

class Groups;

// For each rank, the lowest rank whose directory is the same folder: all 0 where the ranks share one. Makes each rank's
// `directory`; equal paths can be different folders, on several hosts or of processes in different folders.
StatusOr<std::vector<int>> FindSavePlaces(Groups& groups, const std::string& directory);

// What the ranks' checkpoints count from (checkpoint::BeginLineage): one lineage for all, above every generation in any
// rank's directory. `directory`: where this rank saves, empty for a rank that saves nothing; at least one rank does.
StatusOr<checkpoint::Lineage> ShareLineage(Groups& groups, const std::string& directory,
                                           const std::string& resumed_from);

}  // namespace mslua
