// core.join and core.hosts: the other ranks, as ms.communication sees them.
#pragma once

#include <string>

#include "core/base/status.h"

struct lua_State;

namespace mslua {

class Session;

// Joins the ranks of the session's job by `backend` (empty: the launch decides) and gives the session its groups;
// again: nothing. A failure sets the session's exit code.
Status JoinRanks(Session& session, const std::string& backend);

// Registers the functions in the table on top of the stack.
void OpenRanks(lua_State* L);

}  // namespace mslua
