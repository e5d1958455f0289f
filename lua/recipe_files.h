// Recipes as the command line names them: files, and names of the library.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "lua/session.h"

namespace mslua {

// The recipes of the library: name and what the comment at the top of the file says.
std::vector<std::pair<std::string, std::string>> LibraryRecipeDocs();

// Whether `file` can be read as a Lua file. NotFound with the nearest name that is there; InvalidArgument for a folder.
Status CheckLuaFile(const std::string& file);
// The same for a recipe, which may be a name of the library.
Status CheckRecipe(const std::string& recipe);

// Reads the recipe of `session`, then takes files, processes and the network away from it before it runs.
Status ReadThenEnterSandbox(Session& session);

}  // namespace mslua
