// Ctrl-C: ends the chunk that runs, or the line that is being typed; a second one in a row ends the program.
#pragma once

struct lua_State;

namespace mslua::repl {

class InterruptScope {
 public:
  InterruptScope();   // SIGINT is ours
  ~InterruptScope();  // and the former handler's again
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;
};

// While a chunk of this state runs, Ctrl-C raises the Lua error "interrupted" in it; null: none runs.
void InterruptLua(lua_State* L);
// Raises that error in a chunk that runs, from another thread.
void InterruptNow(lua_State* L);
// Whether there was a Ctrl-C since it was last taken.
bool InterruptPending();
bool TakeInterrupt();

}  // namespace mslua::repl
