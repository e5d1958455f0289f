#include "lua/testing/evaluate.h"

#include "luajit-2.1/lua.hpp"

namespace mslua::testing {

std::string Evaluate(Session& session, const std::string& code, const std::string& chunk, Status* error) {
  lua_State* L = session.lua();
  const int top = lua_gettop(L);
  const Status status = session.RunText(code, chunk);
  if (!status.ok()) {
    if (error != nullptr) *error = status;
    return std::string(status.message());
  }
  std::string out;
  for (int i = top + 1; i <= lua_gettop(L); ++i) {
    lua_getglobal(L, "tostring");
    lua_pushvalue(L, i);
    lua_call(L, 1, 1);
    out += (out.empty() ? "" : " ") + std::string(lua_tostring(L, -1));
    lua_pop(L, 1);
  }
  lua_settop(L, top);
  return out;
}

}  // namespace mslua::testing
