#include "lua/lists.h"

#include "absl/strings/str_cat.h"
#include "lua/object.h"

namespace mslua {

Status CheckList(lua_State* L, int index, absl::string_view what) {
  const StackGuard guard(L);
  index = AbsoluteIndex(L, index);
  const auto n = static_cast<double>(lua_objlen(L, index));
  lua_pushnil(L);
  while (lua_next(L, index) != 0) {
    const bool place = lua_type(L, -2) == LUA_TNUMBER && lua_tonumber(L, -2) >= 1 && lua_tonumber(L, -2) <= n;
    if (!place) {
      return absl::InvalidArgumentError(absl::StrCat(what, ": a list has no key ", Describe(L, -2),
                                                     ": named arguments are a table of their own, the last argument"));
    }
    lua_pop(L, 1);
  }
  return absl::OkStatus();
}

bool IsNames(lua_State* L, int index) {
  if (lua_type(L, index) != LUA_TTABLE || lua_objlen(L, index) > 0) return false;
  const StackGuard guard(L);
  index = AbsoluteIndex(L, index);
  lua_pushnil(L);
  return lua_next(L, index) != 0;
}

}  // namespace mslua
