// os.execute, during which signals arrive.
#pragma once

struct lua_State;

namespace mslua {

// Replaces os.execute. C's system() ignores SIGINT while the command runs: a Ctrl-C, or a signal that a launcher passes
// on, was lost. Here this process handles it at once, and the command gets it too. Results are Lua's: the wait status;
// without a command 1.
void OpenExecute(lua_State* L);

}  // namespace mslua
