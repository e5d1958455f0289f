// The verbs of the command line that a person at a terminal uses. Each gives the exit code.
#pragma once

#include "cli/front.h"

namespace mslua {

int RunRepl(const cli::CommandLine& command);    // repl
int RunAttach(const cli::CommandLine& command);  // attach
int RunPs(const cli::CommandLine& command);      // ps
int RunStop(const cli::CommandLine& command);    // stop
int RunDiag(const cli::CommandLine& command);    // diag
int RunLogs(const cli::CommandLine& command);    // logs
int RunPlot(const cli::CommandLine& command);    // plot
int RunTop(const cli::CommandLine& command);     // top

}  // namespace mslua
