#include "repl/show.h"

#include <unistd.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/shape.h"
#include "core/base/tensor.h"
#include "core/base/terminal.h"
#include "core/step/parameter.h"
#include "lua/object.h"

namespace mslua::repl {
namespace {

constexpr int kDepth = 4, kFields = 200;
constexpr int kWidth = 100;

bool IsIdentifier(absl::string_view text) {
  if (text.empty() || absl::ascii_isdigit(text[0])) return false;
  return std::all_of(text.begin(), text.end(), [](char c) { return absl::ascii_isalnum(c) || c == '_'; });
}

class Shower {
 public:
  Shower(Session& session, lua_State* L) : session_(session), lua_(L) {}

  std::string Text(int index, int depth) {
    index = AbsoluteIndex(lua_, index);
    if (const auto* t = ToObject<Tensor>(lua_, index)) return TensorShown(*t, depth);
    if (const auto* p = ToObject<std::shared_ptr<ParameterData>>(lua_, index)) return ParameterShown(**p, depth);
    if (lua_type(lua_, index) == LUA_TSTRING) {
      const std::string text(lua_tostring(lua_, index), lua_objlen(lua_, index));
      return depth == 0 ? text : Quoted(text);
    }
    const bool named = luaL_getmetafield(lua_, index, "__tostring") != 0;
    if (named) lua_pop(lua_, 1);
    if (lua_type(lua_, index) == LUA_TTABLE && !named) return TableShown(index, depth);
    return ToString(index);
  }

 private:
  static std::string TensorShown(const Tensor& t, int depth) {
    if (t.data == nullptr) return "freed Tensor";
    const std::string type = mslua::ToString(t.type);
    if (depth > 0) return type;
    return t.type.rank() == 0 ? TensorText(t.view()) : absl::StrCat(type, "\n", TensorText(t.view()));
  }

  std::string ParameterShown(ParameterData& p, int depth) {
    const std::string head = absl::StrCat("Parameter ", p.key.empty() ? p.name : p.key, " ", mslua::ToString(p.type),
                                          p.requires_grad ? "" : ", not trained");
    if (depth > 0) return head;
    const auto value = ValueOf(session_.state(), p);
    if (!value.ok()) return absl::StrCat(head, "\n", std::string(value.status().message()));
    const std::string part =
        value->type == p.type ? "" : absl::StrCat(", this rank's part ", mslua::ToString(value->type));
    return absl::StrCat(head, part, "\n", TensorText(*value));
  }

  static std::string Quoted(const std::string& text) {
    std::string out = "\"";
    for (const char c : text) {
      if (c == '"' || c == '\\')
        absl::StrAppend(&out, "\\", std::string(1, c));
      else if (c == '\n')
        out += "\\n";
      else
        out += c;
    }
    return out + "\"";
  }

  // By Lua's tostring.
  std::string ToString(int index) {
    const StackGuard guard(lua_);
    lua_pushliteral(lua_, "tostring");  // raw, as the user may have given _G a metatable
    lua_rawget(lua_, LUA_GLOBALSINDEX);
    lua_pushvalue(lua_, index);
    if (const Status s = session_.Call(1, 1); !s.ok()) return std::string(s.message());
    const char* text = lua_tostring(lua_, -1);
    return text == nullptr ? luaL_typename(lua_, index) : text;
  }

  std::string KeyShown(int index, int depth) {
    if (lua_type(lua_, index) == LUA_TSTRING) {
      const std::string text(lua_tostring(lua_, index), lua_objlen(lua_, index));
      return IsIdentifier(text) ? text : absl::StrCat("[", Quoted(text), "]");
    }
    return absl::StrCat("[", Text(index, depth), "]");
  }

  // A list of the table's first keys, without those from 1 to `length`: lua_next allows no change of the table, and
  // what a value's __tostring does is the user's. `more`: there are others.
  int PushKeys(int table, int length, bool* more) {
    lua_newtable(lua_);
    const int keys = lua_gettop(lua_);
    int count = 0;
    for (lua_pushnil(lua_); lua_next(lua_, table) != 0; lua_pop(lua_, 1)) {
      if (lua_type(lua_, -2) == LUA_TNUMBER) {
        const double key = lua_tonumber(lua_, -2);
        if (key >= 1 && key <= length && key == static_cast<int>(key)) continue;
      }
      if (count == kFields) {
        *more = true;
        lua_pop(lua_, 2);
        break;
      }
      lua_pushvalue(lua_, -2);
      lua_rawseti(lua_, keys, ++count);
    }
    return keys;
  }

  std::string TableShown(int table, int depth) {
    const void* const self = lua_topointer(lua_, table);
    if (depth >= kDepth || std::count(open_.begin(), open_.end(), self) > 0) return "{...}";
    open_.push_back(self);
    const StackGuard guard(lua_);
    lua_checkstack(lua_, 16);
    const int length = std::min(static_cast<int>(lua_objlen(lua_, table)), kFields);
    std::vector<std::string> words;
    for (int i = 1; i <= length; ++i) {
      lua_rawgeti(lua_, table, i);
      words.push_back(Text(-1, depth + 1));
      lua_pop(lua_, 1);
    }
    std::vector<std::string> fields;
    bool more = static_cast<int>(lua_objlen(lua_, table)) > length;
    const int keys = PushKeys(table, length, &more);
    for (int i = 1; i <= static_cast<int>(lua_objlen(lua_, keys)); ++i) {
      lua_rawgeti(lua_, keys, i);
      lua_pushvalue(lua_, -1);
      lua_rawget(lua_, table);
      const int value = lua_gettop(lua_);
      fields.push_back(absl::StrCat(KeyShown(value - 1, depth + 1), " = ", Text(value, depth + 1)));
      lua_pop(lua_, 2);
    }
    std::sort(fields.begin(), fields.end());
    words.insert(words.end(), fields.begin(), fields.end());
    if (more) words.push_back("...");
    open_.pop_back();
    return Laid(words, depth);
  }

  // On one line, or one field a line.
  static std::string Laid(const std::vector<std::string>& words, int depth) {
    const std::string line = absl::StrCat("{", absl::StrJoin(words, ", "), "}");
    if (static_cast<int>(line.size()) + 2 * depth <= ColumnsOf(STDOUT_FILENO, kWidth) && !absl::StrContains(line, "\n"))
      return line;
    const std::string indent(2 * (depth + 1), ' ');
    return absl::StrCat("{\n", indent, absl::StrJoin(words, ",\n" + indent), "\n", std::string(2 * depth, ' '), "}");
  }

  Session& session_;
  lua_State* const lua_;
  std::vector<const void*> open_;  // the tables that are being shown
};

}  // namespace

std::string Show(Session& session, lua_State* L, int index) {
  const StackGuard guard(L);
  return Shower(session, L).Text(index, 0);
}

}  // namespace mslua::repl
