// `mslua __complete WORD...`: what the shell offers on Tab.
#pragma once

#include <string>
#include <vector>

namespace mslua {

// Prints the candidates for the last of `words`, one a line (cli/completion.h). Returns an exit code.
// Presets and parameters come from the recipe that the line names: its Lua runs, in the sandbox of `recipes show`.
int CompleteLine(const std::vector<std::string>& words);

}  // namespace mslua
