// The Tensor kind and the module's makers of tensors.
#pragma once

struct lua_State;

namespace mslua {

// Entries of the module (tensor, zeros, ...) into the table on the top, and the kind's metatable.
void OpenTensors(lua_State* L);

}  // namespace mslua
