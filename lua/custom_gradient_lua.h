// core.detach and core.set_gradient: what a cell with a method bprop is traced with.
#pragma once

struct lua_State;

namespace mslua {

// Adds their functions to the module on top of the stack.
void OpenCustomGradients(lua_State* L);

}  // namespace mslua
