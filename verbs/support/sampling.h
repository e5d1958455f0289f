// What the verbs that draw text from a network share.
#pragma once

#include <string>

#include "cli/front.h"
#include "core/base/status.h"
#include "lua/session.h"

namespace mslua {

// What a session takes from a command line with SamplingFlags (cli/common_flags.h), whose first argument is a recipe or
// a folder with weights.
SessionOptions SamplingOptionsOf(const cli::CommandLine& command);
// Calls a function of mslua.verbs and leaves its result on the stack. NotFound: the first argument is neither a folder
// nor a recipe.
Status CallForNetwork(Session& session, const std::string& name);

}  // namespace mslua
