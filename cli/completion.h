// Shell completion, made from the table of verbs.
#pragma once

#include <string>

#include "core/base/status.h"

namespace mslua::cli {

// The script that teaches `shell` (bash, zsh, fish) the verbs, actions and flags that are built; files complete as
// usual. kInvalidArgument for another shell.
StatusOr<std::string> CompletionScript(const std::string& shell);

}  // namespace mslua::cli
