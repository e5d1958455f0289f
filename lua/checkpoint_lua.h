// Checkpoints in Lua: core.save_checkpoint and core.load_checkpoint.
#pragma once

struct lua_State;

namespace mslua {

// Entries of the module, into the table on the top of the stack.
void OpenCheckpoints(lua_State* L);

}  // namespace mslua
