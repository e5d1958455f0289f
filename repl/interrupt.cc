#include "repl/interrupt.h"

#include <csignal>

#include "luajit-2.1/lua.hpp"

namespace mslua::repl {
namespace {

volatile std::sig_atomic_t interrupted = 0;
lua_State* volatile running = nullptr;
struct sigaction former;

void Raise(lua_State* L, lua_Debug*) {
  lua_sethook(L, nullptr, 0, 0);
  luaL_error(L, "interrupted");
}

void OnInterrupt(int signal) {
  if (interrupted && running != nullptr) {
    std::signal(signal, SIG_DFL);
    std::raise(signal);
    return;
  }
  interrupted = 1;
  // The one call of Lua's that a signal handler may make.
  if (running != nullptr) lua_sethook(running, Raise, LUA_MASKCALL | LUA_MASKRET | LUA_MASKCOUNT, 1);
}

}  // namespace

InterruptScope::InterruptScope() {
  struct sigaction ours = {};
  ours.sa_handler = OnInterrupt;
  sigemptyset(&ours.sa_mask);  // no SA_RESTART: reading a line ends with EINTR
  sigaction(SIGINT, &ours, &former);
}

InterruptScope::~InterruptScope() { sigaction(SIGINT, &former, nullptr); }

void InterruptLua(lua_State* L) {
  interrupted = 0;
  running = L;
}

void InterruptNow(lua_State* L) { lua_sethook(L, Raise, LUA_MASKCALL | LUA_MASKRET | LUA_MASKCOUNT, 1); }

bool InterruptPending() { return interrupted != 0; }

bool TakeInterrupt() {
  const bool was = interrupted != 0;
  interrupted = 0;
  return was;
}

}  // namespace mslua::repl
