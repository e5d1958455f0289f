// What verbs share: options of a command line, errors, and running a recipe.
#pragma once

#include "cli/front.h"
#include "core/base/status.h"
#include "lua/session.h"

namespace mslua {

// What a session takes from a command line whose first argument is the recipe or script.
SessionOptions OptionsOf(const cli::CommandLine& command);
// train, eval, verify, prof: the Lua function of the verb's name in mslua.verbs.
int RunRecipe(const cli::CommandLine& command);
// Calls a function of mslua.verbs and leaves its result on the stack.
Status CallVerb(Session& session, const std::string& name);

}  // namespace mslua
