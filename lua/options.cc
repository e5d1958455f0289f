#include "lua/options.h"

#include "lua/object.h"

namespace mslua {
namespace {

void PushOption(lua_State* L, const char* name) {
  lua_getfield(L, LUA_REGISTRYINDEX, kOptionsKey);
  if (lua_istable(L, -1))
    lua_getfield(L, -1, name);
  else
    lua_pushnil(L);  // the library is not loaded yet
}

}  // namespace

std::string OptionString(lua_State* L, const char* name) {
  const StackGuard guard(L);
  PushOption(L, name);
  return lua_isstring(L, -1) ? lua_tostring(L, -1) : "";
}

int OptionInt(lua_State* L, const char* name) {
  const StackGuard guard(L);
  PushOption(L, name);
  return static_cast<int>(lua_tonumber(L, -1));
}

bool OptionBool(lua_State* L, const char* name) {
  const StackGuard guard(L);
  PushOption(L, name);
  return lua_toboolean(L, -1) != 0;
}

}  // namespace mslua
