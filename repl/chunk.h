// What is typed, as Lua to run.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "lua/session.h"

namespace mslua::repl {

// The text with its outermost `local`s made global assignments: a chunk's locals end with it, and what is typed should
// still be there in the next line. `local x` is `x = nil`. Text that does not lex is given back as it is.
std::string KeepLocals(absl::string_view text);

// Compiles what was typed, an expression first, and leaves the function on the Lua stack. Unless `*complete`, the text
// is the beginning of a statement that continues on the next line, and nothing is left. Compiled code of LuaJIT does
// not look whether it should stop, so what is typed runs in the interpreter.
Status Load(lua_State* L, absl::string_view text, const std::string& chunk_name, bool* complete);

}  // namespace mslua::repl
