#include "lua/open_session.h"

#include <utility>

#include "lua/core_module.h"
#include "lua/execute_lua.h"
#include "lua/sample_code_lua.h"
#include "luajit-2.1/lua.hpp"

namespace mslua {

StatusOr<std::unique_ptr<Session>> OpenSession(SessionOptions options) {
  ASSIGN_OR_RETURN(std::unique_ptr<Session> session, Session::Create(std::move(options)));
  lua_State* L = session->lua();
  SetSessionOpener(L, OpenSession);
  OpenExecute(L);
  lua_getglobal(L, "package");
  lua_getfield(L, -1, "preload");
  lua_pushcfunction(L, OpenCoreModule);
  lua_setfield(L, -2, "mslua.core");
  lua_pop(L, 2);
  return session;
}

}  // namespace mslua
