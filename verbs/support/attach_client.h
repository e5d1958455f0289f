// A connection to a running job, for the verbs that use one.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "attach/client/connection.h"
#include "cli/front.h"
#include "core/base/status.h"

namespace mslua {

// To the job that the command line's first argument names; without one, to the only job of this user.
StatusOr<std::unique_ptr<repl::Connection>> AttachTo(const cli::CommandLine& command);

// Prints what a job has answered, with a line feed at its end.
void PrintAnswer(absl::string_view text);

// Sends the lines and prints the answers, `json`: as objects, until one is an error. Gives the exit code.
int RunCommands(repl::Connection& connection, const std::vector<std::string>& lines, bool json);

}  // namespace mslua
