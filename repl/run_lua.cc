#include "repl/run_lua.h"

#include <cmath>
#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "attach/server/command.h"
#include "lua/object.h"
#include "nlohmann/json.hpp"

namespace mslua::repl {
namespace {

using Json = nlohmann::json;

// Null is NaN in a list, which has numbers, and nil elsewhere.
void PushJson(lua_State* L, const Json& json, int depth) {
  if (json.is_boolean()) {
    lua_pushboolean(L, json.get<bool>());
  } else if (json.is_number()) {
    lua_pushnumber(L, json.get<double>());
  } else if (json.is_string()) {
    PushString(L, json.get<std::string>());
  } else if (json.is_structured() && depth < 16 && lua_checkstack(L, 4)) {
    lua_newtable(L);
    int next = 0;
    for (const auto& item : json.items()) {
      if (json.is_array())
        lua_pushnumber(L, ++next);
      else
        PushString(L, item.key());
      if (json.is_array() && item.value().is_null())
        lua_pushnumber(L, std::nan(""));
      else
        PushJson(L, item.value(), depth + 1);
      lua_rawset(L, -3);
    }
  } else {
    lua_pushnil(L);
  }
}

// One word of a command: quoted where it has blanks.
StatusOr<std::string> Word(lua_State* L, int index, const std::string& what) {
  if (lua_type(L, index) == LUA_TNUMBER) {
    const double number = lua_tonumber(L, index);
    const std::string text = absl::StrFormat("%.15g", number);
    return std::strtod(text.c_str(), nullptr) == number ? text : absl::StrFormat("%.17g", number);
  }
  ASSIGN_OR_RETURN(std::string text, ReadString(L, index, what));
  if (absl::StrContains(text, "\"")) return absl::InvalidArgumentError(absl::StrCat(what, ": no quotes in a name"));
  return absl::StrContains(text, " ") ? absl::StrCat("\"", text, "\"") : text;
}

// The named arguments in the table at `index`: " every 5"; for .set " lr=0.1", and " at N" last.
StatusOr<std::string> NamedWords(lua_State* L, int index, const endpoint::CommandDef& def) {
  std::string words, at;
  for (lua_pushnil(L); lua_next(L, index) != 0; lua_pop(L, 1)) {
    if (lua_type(L, -2) != LUA_TSTRING)
      return absl::InvalidArgumentError(absl::StrCat("ms.run.", def.name, ": expected named arguments in the table"));
    const std::string name = lua_tostring(L, -2);
    ASSIGN_OR_RETURN(const std::string value, Word(L, -1, name));
    if (name == "at")
      at = absl::StrCat(" at ", value);
    else
      absl::StrAppend(&words, " ", name, def.named_with, value);
  }
  return words + at;
}

const char kCallKey = 0;

StatusOr<int> CallRun(lua_State* L, Session& session) {
  const auto& def = endpoint::Commands()[static_cast<size_t>(lua_tonumber(L, lua_upvalueindex(1)))];
  std::string line = "." + def.name;
  for (int i = 1; i <= lua_gettop(L); ++i) {
    if (lua_type(L, i) == LUA_TTABLE) {
      ASSIGN_OR_RETURN(const std::string words, NamedWords(L, i, def));
      line += words;
    } else if (!lua_isnil(L, i)) {
      ASSIGN_OR_RETURN(const std::string word, Word(L, i, absl::StrCat("ms.run.", def.name, ": argument ", i)));
      absl::StrAppend(&line, " ", word);
    }
  }
  lua_pushlightuserdata(L, const_cast<char*>(&kCallKey));
  lua_rawget(L, LUA_REGISTRYINDEX);
  const auto* call = static_cast<const RunCall*>(lua_touserdata(L, -1));
  ASSIGN_OR_RETURN(const std::string answer, (*call)(line));
  const Json json = absl::StartsWith(answer, "{") ? Json::parse(answer, nullptr, false) : Json();
  if (json.is_object())
    PushJson(L, json, 0);
  else
    PushString(L, answer);
  return 1;
}

}  // namespace

Status OpenRun(Session& session, const RunCall* call) {
  lua_State* L = session.lua();
  const StackGuard guard(L);
  lua_pushlightuserdata(L, const_cast<char*>(&kCallKey));
  lua_pushlightuserdata(L, const_cast<RunCall*>(call));
  lua_rawset(L, LUA_REGISTRYINDEX);
  RETURN_IF_ERROR(session.RunText("return require 'mslua'", "=mslua/repl"));
  lua_pushliteral(L, "run");
  lua_newtable(L);
  for (size_t i = 0; i < endpoint::Commands().size(); ++i) {
    const auto& def = endpoint::Commands()[i];
    lua_pushnumber(L, static_cast<double>(i));
    lua_pushcclosure(L, Entry<CallRun>, 1);
    lua_setfield(L, -2, def.lua.empty() ? def.name.c_str() : def.lua.c_str());
  }
  // ms refuses what it does not know; this is new to it.
  lua_rawset(L, -3);
  return absl::OkStatus();
}

}  // namespace mslua::repl
