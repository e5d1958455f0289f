// What a verb says of an error, and its exit code.
#pragma once

#include "core/base/status.h"

namespace mslua {

// The exit code that an error stands for: its own (WithExitCode), else its kind's.
int ExitCodeOf(const Status& status);
// Prints the user's frames at an error, where --traceback asked for them.
void PrintTraceback(const Status& status);
// Prints the error; gives its exit code, `exit_code` where that is not 0.
int Report(const Status& status, int exit_code = 0);

}  // namespace mslua
