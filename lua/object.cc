#include "lua/object.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "core/base/text.h"
#include "lua/lists.h"

namespace mslua {
namespace {

Status Expected(lua_State* L, int index, absl::string_view what, absl::string_view expected) {
  return absl::InvalidArgumentError(absl::StrCat(what, ": expected ", expected, ", got ", Describe(L, index)));
}

}  // namespace

std::string Describe(lua_State* L, int index) {
  switch (lua_type(L, index)) {
    case LUA_TNONE:
    case LUA_TNIL:
      return "nil";
    case LUA_TBOOLEAN:
      return lua_toboolean(L, index) ? "true" : "false";
    case LUA_TNUMBER: {
      lua_pushvalue(L, index);
      std::string text = lua_tostring(L, -1);
      lua_pop(L, 1);
      return text;
    }
    case LUA_TSTRING:
      return absl::StrCat("\"", lua_tostring(L, index), "\"");
    case LUA_TUSERDATA: {
      if (const Tensor* t = ToObject<Tensor>(L, index)) return absl::StrCat("a Tensor ", ToString(t->type));
      if (!luaL_getmetafield(L, index, "__name")) return "a userdata";
      std::string text = absl::StrCat("a ", lua_tostring(L, -1));
      lua_pop(L, 1);
      return text;
    }
    default:
      return absl::StrCat("a ", luaL_typename(L, index));
  }
}

StatusOr<int64_t> ReadInt(lua_State* L, int index, absl::string_view what) {
  if (lua_type(L, index) != LUA_TNUMBER) return Expected(L, index, what, "an integer");
  const double d = lua_tonumber(L, index);
  if (d != std::floor(d) || std::fabs(d) > 9007199254740992.0) return Expected(L, index, what, "an integer");
  return static_cast<int64_t>(d);
}

StatusOr<double> ReadNumber(lua_State* L, int index, absl::string_view what) {
  if (lua_type(L, index) != LUA_TNUMBER) return Expected(L, index, what, "a number");
  return lua_tonumber(L, index);
}

StatusOr<bool> ReadBool(lua_State* L, int index, absl::string_view what) {
  if (lua_type(L, index) != LUA_TBOOLEAN) return Expected(L, index, what, "true or false");
  return lua_toboolean(L, index) != 0;
}

StatusOr<std::string> ReadString(lua_State* L, int index, absl::string_view what) {
  if (lua_type(L, index) != LUA_TSTRING) return Expected(L, index, what, "a string");
  size_t size;
  const char* text = lua_tolstring(L, index, &size);
  return std::string(text, size);
}

StatusOr<DType> ReadDType(lua_State* L, int index, absl::string_view what) {
  if (lua_type(L, index) == LUA_TSTRING) {
    if (const auto dtype = ParseDType(lua_tostring(L, index))) return *dtype;
  }
  return Expected(L, index, what, "a dtype (ms.float32, float64, bfloat16, float16, int32, int64, uint8, bool)");
}

StatusOr<std::vector<int64_t>> ReadInts(lua_State* L, int index, absl::string_view what) {
  std::vector<int64_t> out;
  if (lua_type(L, index) == LUA_TNUMBER) {
    ASSIGN_OR_RETURN(const int64_t one, ReadInt(L, index, what));
    out.push_back(one);
    return out;
  }
  if (lua_type(L, index) != LUA_TTABLE) return Expected(L, index, what, "a list of integers");
  RETURN_IF_ERROR(CheckList(L, index, what));
  const int n = static_cast<int>(lua_objlen(L, index));
  index = AbsoluteIndex(L, index);
  for (int i = 1; i <= n; ++i) {
    lua_rawgeti(L, index, i);
    const auto v = ReadInt(L, -1, absl::StrCat(what, "[", i, "]"));
    lua_pop(L, 1);
    RETURN_IF_ERROR(v.status());
    out.push_back(*v);
  }
  return out;
}

StatusOr<Shape> ReadShape(lua_State* L, int index, absl::string_view what) {
  ASSIGN_OR_RETURN(const std::vector<int64_t> sizes, ReadInts(L, index, what));
  if (sizes.size() > kMaxRank) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, ": expected at most ", kMaxRank, " dimensions, got ", sizes.size()));
  }
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] < 0)
      return absl::InvalidArgumentError(absl::StrCat(what, "[", i + 1, "]: expected a size, got ", sizes[i]));
  }
  if (HasTooManyElements(sizes))
    return absl::InvalidArgumentError(
        absl::StrCat(what, ": ", ToString(absl::MakeConstSpan(sizes)), " has too many elements"));
  return Shape(sizes.begin(), sizes.end());
}

namespace {

template <class T, class Read>
StatusOr<T> Field(lua_State* L, int index, const char* name, T fallback, Read read) {
  const StackGuard guard(L);
  lua_getfield(L, index, name);
  if (lua_isnil(L, -1)) return fallback;
  return read(L, -1, name);
}

}  // namespace

StatusOr<int64_t> FieldInt(lua_State* L, int index, const char* name, int64_t fallback) {
  return Field(L, index, name, fallback, ReadInt);
}
StatusOr<double> FieldNumber(lua_State* L, int index, const char* name, double fallback) {
  return Field(L, index, name, fallback, ReadNumber);
}
StatusOr<bool> FieldBool(lua_State* L, int index, const char* name, bool fallback) {
  return Field(L, index, name, fallback, ReadBool);
}
StatusOr<std::string> FieldString(lua_State* L, int index, const char* name, std::string fallback) {
  return Field(L, index, name, std::move(fallback), ReadString);
}

Status CheckFields(lua_State* L, int index, absl::string_view what, const std::vector<std::string>& known) {
  const StackGuard guard(L);
  index = AbsoluteIndex(L, index);
  if (lua_type(L, index) != LUA_TTABLE) return Expected(L, index, what, "a table");
  lua_pushnil(L);
  while (lua_next(L, index)) {
    lua_pop(L, 1);
    if (lua_type(L, -1) != LUA_TSTRING) continue;
    const std::string key = lua_tostring(L, -1);
    bool found = false;
    for (const std::string& k : known) found = found || k == key;
    if (!found)
      return absl::InvalidArgumentError(absl::StrCat(what, ": unknown field '", key, "'", DidYouMean(key, known)));
  }
  return absl::OkStatus();
}

StatusOr<int64_t> AxisFromLua(int64_t axis, absl::string_view what) {
  if (axis == 0)
    return absl::InvalidArgumentError(
        absl::StrCat(what, ": axis 0 does not exist: axes count from 1, or from the end with -1"));
  return axis > 0 ? axis - 1 : axis;
}

void PushString(lua_State* L, absl::string_view text) { lua_pushlstring(L, text.data(), text.size()); }

void PushInts(lua_State* L, absl::Span<const int64_t> values) {
  lua_createtable(L, static_cast<int>(values.size()), 0);
  for (size_t i = 0; i < values.size(); ++i) {
    lua_pushnumber(L, static_cast<double>(values[i]));
    lua_rawseti(L, -2, static_cast<int>(i) + 1);
  }
}

void SetFunctions(lua_State* L, std::initializer_list<NamedFunction> functions) {
  for (const NamedFunction& f : functions) {
    lua_pushcfunction(L, f.function);
    lua_setfield(L, -2, f.name);
  }
}

}  // namespace mslua
