// `?name`: what a name is.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "core/base/status.h"
#include "lua/session.h"

namespace mslua::repl {

// The reference text of a name of the library (lua/mslua/help.lua); the members of a module; of a variable what it is.
// As wide as the terminal. An error when nothing is known, with what the library says of names that moved.
StatusOr<std::string> DescribeName(Session& session, absl::string_view name);

}  // namespace mslua::repl
