// A Session a rank, ranks as threads of this process.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lua/session.h"

namespace mslua::testing {

// Runs Lua text on every rank, one compute thread each. Gives what each returned, values joined by a space as tostring
// gives them, or the message of its error; an error stops the other ranks' collectives. `verb` is core.options.verb.
std::vector<std::string> RunSessions(int ranks, const std::string& code, const std::string& verb = "train",
                                     const std::function<void(SessionOptions&)>& adjust = nullptr);

// The numbers at the beginning of a text, as a rank returns them.
std::vector<double> Numbers(const std::string& text);

}  // namespace mslua::testing
