// The verbs of the command line that run here. Each gives the exit code (core/base/exit_code.h); messages go to stderr
// as "mslua: error: ...".
#pragma once

#include "cli/front.h"
#include "core/base/status.h"
#include "lua/session.h"

namespace mslua {

// What a session takes from a command line whose first argument is the recipe or script.
SessionOptions OptionsOf(const cli::CommandLine& command);
// The exit code that an error stands for: its own (WithExitCode), else its kind's.
int ExitCodeOf(const Status& status);
// Prints the user's frames at an error, where --traceback asked for them.
void PrintTraceback(const Status& status);
// Prints the error; gives its exit code, `exit_code` where that is not 0.
int Report(const Status& status, int exit_code = 0);

int RunScript(const cli::CommandLine& command);   // run
int RunRecipe(const cli::CommandLine& command);   // train, eval, verify: the Lua function of that name in mslua.verbs
int RunRecipes(const cli::CommandLine& command);  // recipes
int RunGraph(const cli::CommandLine& command);    // graph
int RunPlan(const cli::CommandLine& command);     // plan
int RunData(const cli::CommandLine& command);     // data
int RunCheckpoint(const cli::CommandLine& command);  // ckpt
int RunVersion(const cli::CommandLine& command);     // version
int RunDoctor(const cli::CommandLine& command);      // doctor

}  // namespace mslua
