// ms.run: the commands of attach as Lua functions.
#pragma once

#include <functional>
#include <string>

#include "core/base/status.h"
#include "lua/session.h"

namespace mslua::repl {

// Sends a line, gives the answer as JSON or text.
using RunCall = std::function<StatusOr<std::string>(const std::string& line)>;

// Makes ms.run: `ms.run.watch("relu", {every = 5})` is `.watch relu every 5`, `ms.run.set{lr = 0.1, at = 460}` is
// `.set lr=0.1 at 460`. A function gives the answer's JSON as a table, or its text; what fails is an error. `call`
// outlives the session's use.
Status OpenRun(Session& session, const RunCall* call);

}  // namespace mslua::repl
