// Training in Lua: core.trainer, core.evaluate, core.stepper.
#pragma once

#include "lua/session.h"

namespace mslua {

// Entries of the module, into the table on the top of the stack.
void OpenTrainers(lua_State* L);
void OpenSteppers(lua_State* L);

}  // namespace mslua
