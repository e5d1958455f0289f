// `?name`: what a name is.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "core/base/status.h"
#include "lua/session.h"

namespace mslua::repl {

// An operator's call, doc and attributes; a library function's annotation; else what kind of value the name has.
// NotFound: neither.
StatusOr<std::string> DescribeName(Session& session, absl::string_view name);

}  // namespace mslua::repl
