// A line of a REPL on several ranks that the user wants to stop: the ranks end it after the same step.
#pragma once

#include <atomic>

struct lua_State;

namespace mslua {

struct LineStop {
  std::atomic<bool> wanted{false};    // by the user
  std::atomic<bool> together{false};  // the line that runs asks core.stop_together
};
// Of this process, which has one REPL; other threads set `wanted`.
LineStop& CurrentLineStop();

// core.stop_together(): called by all ranks between two steps; whether one of them wants to stop.
void OpenStopTogether(lua_State* L);

}  // namespace mslua
