#include "repl/describe.h"

#include <unistd.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "attach/server/command.h"
#include "core/base/terminal.h"
#include "lua/object.h"

namespace mslua::repl {
namespace {

constexpr int kWidth = 100, kLeastWidth = 40;

std::string CallOf(const endpoint::CommandDef& def) {
  return absl::StrCat("ms.run.", def.lua.empty() ? def.name : def.lua);
}

// "ms.run" and its functions, which an attached client has: they are the commands of attach.
std::string RunText(absl::string_view name) {
  const auto& commands = endpoint::Commands();
  if (name == "ms.run") {
    std::string text = "The commands of mslua attach as functions; each gives its answer as a table.";
    for (const auto& def : commands) absl::StrAppend(&text, "\n  ", CallOf(def), "  ", def.doc);
    return text;
  }
  const auto found =
      std::find_if(commands.begin(), commands.end(), [&](const auto& def) { return CallOf(def) == name; });
  if (found == commands.end()) return "";
  return absl::StrCat(name, "(...)    .", found->name, found->usage.empty() ? "" : " ", found->usage, "\n  ",
                      found->doc);
}

// What `name`, an expression, is: "x is f32[2,3]".
StatusOr<std::string> ValueText(Session& session, absl::string_view name) {
  RETURN_IF_ERROR(session.RunText(absl::StrCat("return ", name), "=?"));
  lua_State* L = session.lua();
  if (lua_isnil(L, -1)) return absl::NotFoundError(absl::StrCat("nothing is known of '", name, "'"));
  return absl::StrCat(name, " is ", Describe(L, -1));
}

}  // namespace

StatusOr<std::string> DescribeName(Session& session, absl::string_view name) {
  name = absl::StripAsciiWhitespace(name);
  absl::ConsumeSuffix(&name, "()");
  if (name.empty()) return absl::InvalidArgumentError("?name: a name is missing, such as ?nn, ?nn.Adam or ?matmul");
  lua_State* L = session.lua();
  const StackGuard guard(L);
  RETURN_IF_ERROR(session.RunText("local ms = require 'mslua' return require('mslua.help').describe, rawget(ms, 'run')",
                                  "=mslua/repl"));
  if (!lua_isnil(L, -1)) {
    if (std::string text = RunText(name); !text.empty()) return text;
  }
  lua_pop(L, 1);
  PushString(L, name);
  lua_pushnumber(L, std::max(ColumnsOf(STDOUT_FILENO, kWidth), kLeastWidth));
  RETURN_IF_ERROR(session.Call(2, 1));
  if (lua_type(L, -1) == LUA_TSTRING) return std::string(lua_tostring(L, -1));
  return ValueText(session, name);
}

}  // namespace mslua::repl
