#include "repl/name_help.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "lua/open_session.h"
#include "repl/describe.h"

namespace mslua::repl {

StatusOr<std::string> HelpOfName(absl::string_view name) {
  const bool plain = !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return absl::ascii_isalnum(c) || c == '_' || c == '.';
  });
  if (!plain) return absl::NotFoundError(absl::StrCat("'", name, "' is no name of the library"));
  ASSIGN_OR_RETURN(const auto session, OpenSession({}));
  RETURN_IF_ERROR(session->RunText("ms = require 'mslua' nn, ops = ms.nn, ms.ops", "=mslua/help"));
  return DescribeName(*session, name);
}

}  // namespace mslua::repl
