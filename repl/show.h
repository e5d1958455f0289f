// Values of Lua as a person wants to see them.
#pragma once

#include <string>

#include "lua/session.h"

namespace mslua::repl {

// The value at `index`. A tensor: its type and, on the lines below, its elements (the edges of a large one); a
// parameter also its name; a table: its fields, sorted, on one line where they fit, four levels and 200 fields deep;
// a string as it is. What `__tostring` or `__index` raise is part of the text.
std::string Show(Session& session, lua_State* L, int index);

}  // namespace mslua::repl
