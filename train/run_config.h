// What a run folder has of folders outside of it: config.lua names the recipe's, ckpt_directory that of the
// checkpoints.
#pragma once

#include <string>
#include <vector>

#include "core/base/status.h"

namespace mslua {

// The paths by which `path` is found from the run folder `run`: the path from there, if both are inside `current`, so
// that they may be moved together; and the absolute path. `current`: the absolute path of the current folder.
std::vector<std::string> PathsFromRun(const std::string& path, const std::string& run, const std::string& current);

// Adds the paths of `current`, the folder that the recipe's path is relative to, to `config`: the text of a recipe with
// what was overridden (Recipe:config_text in lua/mslua/recipe.lua). Returns other text as it is.
std::string WithFolders(const std::string& config, const std::string& run, const std::string& current);

// Writes config.lua into the run folder `run`.
Status WriteConfig(const std::string& run, const std::string& config);

// Records that the checkpoints of the run folder `run` are in `directory`; empty: in the run folder
// (checkpoint::CheckpointsOfRun reads it).
Status RecordCheckpointDirectory(const std::string& run, const std::string& directory);

}  // namespace mslua
