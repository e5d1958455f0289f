// Tokenizers in Lua: core.tokenizer and core.decode_stream.
#pragma once

struct lua_State;

namespace mslua {

void OpenTokenizers(lua_State* L);

}  // namespace mslua
