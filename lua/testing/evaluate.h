// Lua text and what comes of it.
#pragma once

#include <string>

#include "lua/session.h"

namespace mslua::testing {

// What the chunk returns, values joined by a space as tostring gives them; the message of its error when there is one,
// which is stored in `*error` too (null: not wanted). Messages name `chunk`, such as "@test.lua".
std::string Evaluate(Session& session, const std::string& code, const std::string& chunk = "@test.lua",
                     Status* error = nullptr);

}  // namespace mslua::testing
