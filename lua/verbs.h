// The verbs of the command line that run here. Each gives the exit code: 0, 1 when the work failed, 2 when the
// request was wrong; messages go to stderr as "mslua: error: ...".
#pragma once

#include "cli/front.h"
#include "core/base/status.h"
#include "lua/session.h"

namespace mslua {

// What a session takes from a command line whose first argument is the recipe or script.
SessionOptions OptionsOf(const cli::CommandLine& command);
// Prints the error; gives the exit code.
int Report(const Status& status);

int RunScript(const cli::CommandLine& command);
int RunRepl(const cli::CommandLine& command);
int RunVersion(const cli::CommandLine& command);

}  // namespace mslua
