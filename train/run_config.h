// config.lua of a run folder: the recipe with what was overridden.
#pragma once

#include <string>

#include "core/base/status.h"

namespace mslua {

// Adds the folders that the recipe's path is relative to to `config`, the text of a recipe with what was overridden
// (Recipe:config_text in lua/mslua/recipe.lua). The folders are the path from the run folder `run` to `current`, if
// `run` is inside `current`, so that both may be moved together; and `current`, the absolute path of the current
// folder. Returns other text as it is.
std::string WithFolders(const std::string& config, const std::string& run, const std::string& current);

// Writes config.lua into the run folder `run`.
Status WriteConfig(const std::string& run, const std::string& config);

}  // namespace mslua
