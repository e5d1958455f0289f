// The RUN argument of the verbs that read a run's files.
#pragma once

#include <string>

#include "core/base/status.h"

namespace mslua::repl {

// A run's folder: a path; `last` or nothing, the last run that has `part`; a recipe's name, its newest running job,
// else its last run; or a running job by its id. What was not given as a path is named on stderr.
StatusOr<std::string> FolderOfRun(const std::string& run, const std::string& part);

}  // namespace mslua::repl
