// What .help prints of the prompt's own commands. endpoint::CommandHelp has those of a running job.
#pragma once

#include <string>

namespace mslua::repl {

std::string LoopHelp();    // of every prompt
std::string ScopeHelp();   // what a recipe brings into scope
std::string RecipeHelp();  // of `mslua repl RECIPE`
std::string RanksHelp();   // of `mslua repl -n N`
std::string AttachHelp();  // of `mslua attach`

}  // namespace mslua::repl
