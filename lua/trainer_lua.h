// Training in Lua: core.trainer, core.evaluate, core.stepper.
#pragma once

struct lua_State;

namespace mslua {

// The registry's name of core.options, which ms.set_context and the flags write.
inline constexpr char kOptionsKey[] = "mslua.options";

// Entries of the module, into the table on the top of the stack.
void OpenTrainers(lua_State* L);

}  // namespace mslua
