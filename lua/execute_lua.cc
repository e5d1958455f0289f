#include "lua/execute_lua.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <string>

#include "core/base/spawn.h"
#include "lua/object.h"
#include "lua/session.h"
#include "train/signal_scope.h"

namespace mslua {
namespace {

// The command's wait status; -1 when it could not be started.
int Execute(const std::string& command) {
  std::string shell = "sh", flag = "-c", text = command;
  char* const words[] = {shell.data(), flag.data(), text.data(), nullptr};
  const SpawnAttributes attributes({SIGINT, SIGTERM, SIGHUP, SIGPIPE});
  pid_t child = 0;
  const int error = posix_spawn(&child, "/bin/sh", nullptr, attributes.get(), words, environ);
  if (error != 0) {
    errno = error;
    return -1;
  }
  const int before = SignalScope::Signal();
  bool passed_on = false;
  // Handlers restart waitpid: so it is asked again and again.
  for (useconds_t pause = 200;;) {
    int status = 0;
    const pid_t ended = waitpid(child, &status, WNOHANG);
    if (ended == child) return status;
    if (ended < 0 && errno != EINTR) return -1;
    if (const int signal = SignalScope::Signal(); signal != before && !passed_on) {
      passed_on = true;
      kill(child, signal);  // a terminal's reaches both; one from a launcher this process alone
    }
    usleep(pause);
    pause = pause < 20000 ? pause * 2 : pause;
  }
}

StatusOr<int> ExecuteFromLua(lua_State* L, Session&) {
  if (lua_isnoneornil(L, 1)) {
    lua_pushnumber(L, access("/bin/sh", X_OK) == 0 ? 1 : 0);
    return 1;
  }
  ASSIGN_OR_RETURN(const std::string command, ReadString(L, 1, "os.execute: command"));
  lua_pushnumber(L, Execute(command));
  return 1;
}

}  // namespace

void OpenExecute(lua_State* L) {
  lua_getglobal(L, "os");
  lua_pushcfunction(L, Entry<ExecuteFromLua>);
  lua_setfield(L, -2, "execute");
  lua_pop(L, 1);
}

}  // namespace mslua
