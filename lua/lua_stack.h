// Where the Lua of a session is, as another thread may ask.
#pragma once

#include <pthread.h>

#include <atomic>
#include <memory>
#include <string>

#include "core/graph/graph.h"

struct lua_State;

namespace mslua {

// Where the function on the top of the stack was written.
std::shared_ptr<const Location> WhereDefined(lua_State* L);

// Where the Lua was written that training has called and that runs now; null: none. Lives as long as the state.
using LuaWhereabouts = std::atomic<const Location*>;
LuaWhereabouts& WhereaboutsOf(lua_State* L);

// While it lives, the state's thread runs Lua that was written there.
class RunningLua {
 public:
  RunningLua(lua_State* L, const std::shared_ptr<const Location>& written)
      : running_(WhereaboutsOf(L)), outer_(running_.exchange(written.get(), std::memory_order_relaxed)) {}
  ~RunningLua() { running_.store(outer_, std::memory_order_relaxed); }
  RunningLua(const RunningLua&) = delete;
  RunningLua& operator=(const RunningLua&) = delete;

 private:
  LuaWhereabouts& running_;
  const Location* const outer_;
};

// From any thread. "recipe.lua:14", or empty when no Lua runs.
std::string ToString(const LuaWhereabouts& running);

// From another thread: the stack of the Lua that `thread` runs, one function a line, innermost first. Empty when none
// runs, or it does not come to its next instruction within 0.3 s: it waits in a C function, or runs compiled.
std::string AskLuaStack(lua_State* L, const LuaWhereabouts& running, pthread_t thread);

}  // namespace mslua
