// `mslua help ops.pad`: what `?ops.pad` shows at the prompt.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "core/base/status.h"

namespace mslua::repl {

// As DescribeName (repl/describe.h), in a session of its own. An error where `name` is no name of the library.
StatusOr<std::string> HelpOfName(absl::string_view name);

}  // namespace mslua::repl
