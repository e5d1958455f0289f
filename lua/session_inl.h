#pragma once

#include "luajit-2.1/lua.hpp"

namespace mslua {

template <ApiFunction f, int most>
int Entry(lua_State* L) {
  {
    Session& session = Session::Of(L);
    lua_State* const outer = session.Enter(L);
    const Status count = most < 0 ? absl::OkStatus() : CheckArgumentCount(L, most);
    const StatusOr<int> results = count.ok() ? CallGuarded(f, L, session) : count;
    if (!results.ok()) PushError(L, session, results.status());
    session.Enter(outer);
    if (results.ok()) return *results;
  }
  return lua_error(L);
}

}  // namespace mslua
