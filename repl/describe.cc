#include "repl/describe.h"

#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "core/op/registry.h"
#include "lua/embedded.h"
#include "lua/object.h"
#include "lua/op_attrs.h"
#include "repl/show.h"

namespace mslua::repl {
namespace {

std::string OperatorText(Session& session, const OpDef& op) {
  std::vector<std::string> inputs;
  for (const auto& input : op.inputs) inputs.push_back(absl::StrCat(input.name, input.variadic ? " ..." : ""));
  std::string text = absl::StrCat("ops.", op.name, "(", absl::StrJoin(inputs, ", "), ")",
                                  op.class_name.empty() ? "" : absl::StrCat("    ops.", op.class_name), "\n  ", op.doc);
  for (const AttrDef& a : op.attrs) {
    std::string fallback = "required";
    if (!a.required) {
      PushAttr(session.lua(), a.kind, a.fallback);
      fallback = absl::StrCat("default ", Show(session, session.lua(), -1));
      lua_pop(session.lua(), 1);
    }
    absl::StrAppend(&text, "\n  ", a.name, ": ", a.doc, a.doc.empty() ? "" : " ", "(", fallback, ")");
  }
  return text;
}

const OpDef* FindOperator(absl::string_view name) {
  absl::ConsumePrefix(&name, "ms.");
  absl::ConsumePrefix(&name, "ops.");
  for (const OpDef& op : Operators().all()) {
    if (name == op.name || (name == op.class_name && !op.class_name.empty())) return &op;
  }
  return nullptr;
}

// The `---` lines above line `line` (from 1) of a library file, and that line.
std::string Annotation(const EmbeddedChunk& chunk, int line) {
  const std::vector<absl::string_view> lines = absl::StrSplit(chunk.source, '\n');
  if (line < 1 || line > static_cast<int>(lines.size())) return "";
  int first = line - 1;
  while (first > 0 && absl::StartsWith(absl::StripLeadingAsciiWhitespace(lines[first - 1]), "---")) --first;
  std::string text = std::string(absl::StripAsciiWhitespace(lines[line - 1]));
  for (int i = first; i < line - 1; ++i) {
    absl::string_view words = absl::StripLeadingAsciiWhitespace(lines[i]);
    absl::ConsumePrefix(&words, "---");
    absl::StrAppend(&text, "\n  ", absl::StripAsciiWhitespace(words));
  }
  return text;
}

// What the library says about the function on the top of the stack; empty for one of somebody else.
std::string FunctionText(lua_State* L) {
  lua_Debug info;
  lua_pushvalue(L, -1);
  lua_getinfo(L, ">S", &info);
  absl::string_view path = info.source;
  if (!absl::ConsumePrefix(&path, "=") || !absl::ConsumeSuffix(&path, ".lua")) return "";
  absl::ConsumeSuffix(&path, "/init");
  const EmbeddedChunk* chunk = FindEmbedded(absl::StrReplaceAll(path, {{"/", "."}}));
  return chunk == nullptr ? "" : Annotation(*chunk, info.linedefined);
}

}  // namespace

StatusOr<std::string> DescribeName(Session& session, absl::string_view name) {
  if (const OpDef* op = FindOperator(name)) return OperatorText(session, *op);
  lua_State* L = session.lua();
  const StackGuard guard(L);
  if (name.empty() || !session.RunText(absl::StrCat("return ", name), "=?").ok() || lua_isnil(L, -1))
    return absl::NotFoundError(absl::StrCat("nothing is known of '", name, "'"));
  if (lua_type(L, -1) == LUA_TTABLE) {
    // A class is described by its maker.
    lua_getfield(L, -1, "init");
    if (lua_type(L, -1) != LUA_TFUNCTION) lua_pop(L, 1);
  }
  if (lua_type(L, -1) == LUA_TFUNCTION && !lua_iscfunction(L, -1)) {
    const std::string text = FunctionText(L);
    if (!text.empty()) return text;
  }
  return absl::StrCat(name, " is ", Describe(L, -1));
}

}  // namespace mslua::repl
