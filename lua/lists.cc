#include "lua/lists.h"

#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"

namespace mslua {
namespace {

// The key that is at `index`.
std::string KeyText(lua_State* L, int index) {
  if (lua_type(L, index) == LUA_TSTRING) return absl::StrCat("\"", lua_tostring(L, index), "\"");
  if (lua_type(L, index) == LUA_TNUMBER) return absl::StrCat(lua_tonumber(L, index));
  return absl::StrCat("that is a ", luaL_typename(L, index));
}

}  // namespace

Status NilInList(absl::string_view what, int64_t place) {
  return absl::InvalidArgumentError(absl::StrCat(what, ": element ", place, " of the list is nil"));
}

Status CheckList(lua_State* L, int index, absl::string_view what) {
  if (index < 0) index += lua_gettop(L) + 1;
  const int top = lua_gettop(L);
  const auto n = static_cast<double>(lua_objlen(L, index));
  lua_pushnil(L);
  while (lua_next(L, index) != 0) {
    const bool place = lua_type(L, -2) == LUA_TNUMBER && lua_tonumber(L, -2) >= 1 && lua_tonumber(L, -2) <= n;
    if (!place) {
      const std::string key = KeyText(L, -2);
      const double at = lua_type(L, -2) == LUA_TNUMBER ? lua_tonumber(L, -2) : 0;
      lua_settop(L, top);
      if (at > n && at == std::floor(at)) return NilInList(what, static_cast<int64_t>(n) + 1);
      return absl::InvalidArgumentError(absl::StrCat(what, ": a list has no key ", key,
                                                     ": named arguments are a table of their own, the last argument"));
    }
    lua_pop(L, 1);
  }
  return absl::OkStatus();
}

bool IsNames(lua_State* L, int index) {
  if (lua_type(L, index) != LUA_TTABLE || lua_objlen(L, index) > 0) return false;
  if (index < 0) index += lua_gettop(L) + 1;
  lua_pushnil(L);
  const bool any = lua_next(L, index) != 0;
  if (any) lua_pop(L, 2);
  return any;
}

}  // namespace mslua
