// A Lua function that C++ keeps and calls later.
#pragma once

#include <memory>

#include "lua/lua_stack.h"
#include "lua/object.h"
#include "lua/session.h"

namespace mslua {

// A function in the registry; ok() when there is one.
class Callback {
 public:
  Callback() = default;
  // The field of the table at `index`, if it is a function.
  static Callback Field(Session& session, int index, const char* name) {
    lua_State* L = session.lua();
    Callback c;
    lua_getfield(L, index, name);
    if (lua_type(L, -1) != LUA_TFUNCTION) {
      lua_pop(L, 1);
      return c;
    }
    c.written_ = WhereDefined(L);
    const int ref = luaL_ref(L, LUA_REGISTRYINDEX);
    c.ref_ = std::shared_ptr<const int>(new int(ref), [&session](const int* r) {
      luaL_unref(session.lua(), LUA_REGISTRYINDEX, *r);
      delete r;
    });
    return c;
  }
  bool ok() const { return ref_ != nullptr; }
  void Push(lua_State* L) const { lua_rawgeti(L, LUA_REGISTRYINDEX, *ref_); }
  // Where it is in the user's file.
  const std::shared_ptr<const Location>& written() const { return written_; }

 private:
  std::shared_ptr<const Location> written_;
  std::shared_ptr<const int> ref_;
};
}  // namespace mslua
