// `mslua repl`: reads lines, runs them, prints what expressions give. Works without a terminal.
#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "core/op/registry.h"
#include "lua/object.h"
#include "lua/op_call.h"
#include "lua/verbs.h"

namespace mslua {
namespace {

constexpr char kHelp[] =
    "an expression prints its value (a ; at its end silences it), _ is the last one\n"
    "  ?name     what an operator or a name is\n"
    "  .help     this\n"
    "  .quit     leaves\n";

class Repl {
 public:
  explicit Repl(Session& session) : session_(session), lua_(session.lua()), terminal_(isatty(0) && isatty(1)) {}

  // The number of lines that failed.
  int Run() {
    std::string line, pending;
    while (true) {
      if (terminal_) {
        std::fputs(pending.empty() ? "> " : ">> ", stdout);
        std::fflush(stdout);
      }
      if (!std::getline(std::cin, line)) break;
      if (pending.empty()) {
        const absl::string_view text = absl::StripAsciiWhitespace(line);
        if (text.empty()) continue;
        if (text == ".quit" || text == ".exit") break;
        if (text[0] == '.' || text[0] == '?') {
          Command(text);
          continue;
        }
      }
      pending += pending.empty() ? line : absl::StrCat("\n", line);
      if (Evaluate(pending)) pending.clear();
    }
    if (!pending.empty()) Error("stdin: the last statement is not complete");
    return errors_;
  }

 private:
  void Error(absl::string_view message) {
    ++errors_;
    std::fflush(stdout);
    std::fprintf(stderr, "%s\n", std::string(message).c_str());
  }

  void Command(absl::string_view text) {
    if (text[0] == '?') return Describe(absl::StripAsciiWhitespace(text.substr(1)));
    if (text == ".help")
      std::fputs(kHelp, stdout);
    else
      Error(absl::StrCat("unknown command ", text, " (.help lists them)"));
  }

  void Describe(absl::string_view name) {
    absl::ConsumePrefix(&name, "ms.");
    absl::ConsumePrefix(&name, "ops.");
    for (const OpDef& op : Operators().all()) {
      if (name != op.name && (name != op.class_name || op.class_name.empty())) continue;
      std::string call = absl::StrCat("ops.", op.name, "(");
      for (size_t i = 0; i < op.inputs.size(); ++i)
        absl::StrAppend(&call, i ? ", " : "", op.inputs[i].name, op.inputs[i].variadic ? " ..." : "");
      std::printf("%s)%s\n  %s\n", call.c_str(),
                  op.class_name.empty() ? "" : absl::StrCat("    ops.", op.class_name).c_str(), op.doc.c_str());
      for (const AttrDef& a : op.attrs) {
        std::string fallback = "required";
        if (!a.required) {
          PushAttr(lua_, a.kind, a.fallback);
          fallback = absl::StrCat("default ", ToText());
        }
        std::printf("  %s: %s%s(%s)\n", a.name.c_str(), a.doc.c_str(), a.doc.empty() ? "" : " ", fallback.c_str());
      }
      return;
    }
    Error(absl::StrCat("nothing is known of '", name, "'"));
  }

  // The value on the top, popped, as text.
  std::string ToText(int depth = 0) {
    const bool named = luaL_getmetafield(lua_, -1, "__tostring") != 0;
    if (named) lua_pop(lua_, 1);
    const int n = lua_type(lua_, -1) == LUA_TTABLE && !named ? static_cast<int>(lua_objlen(lua_, -1)) : 0;
    // Deeper lists, those that hold themselves among them, print as tables.
    if (n > 0 && depth < 4) {
      std::string text = "{";
      for (int i = 1; i <= n; ++i) {
        lua_rawgeti(lua_, -1, i);
        absl::StrAppend(&text, i > 1 ? ", " : "", ToText(depth + 1));
      }
      lua_pop(lua_, 1);
      return text + "}";
    }
    lua_getglobal(lua_, "tostring");
    lua_insert(lua_, -2);
    if (const Status s = session_.Call(1, 1); !s.ok()) return std::string(s.message());
    std::string text = lua_tostring(lua_, -1);
    lua_pop(lua_, 1);
    return text;
  }

  // `local x = 1` as `x = 1`: a chunk's locals end with it, the REPL's are there in the next line.
  static std::string WithoutLocal(const std::string& text) {
    absl::string_view rest = absl::StripLeadingAsciiWhitespace(text);
    if (!absl::ConsumePrefix(&rest, "local ")) return text;
    const bool keeps =
        absl::StartsWith(absl::StripLeadingAsciiWhitespace(rest), "function ") || absl::StrContains(rest, "=");
    return keeps ? std::string(rest) : text;
  }

  // False when the text is a statement that goes on in the next line.
  bool Evaluate(const std::string& line) {
    const std::string text = WithoutLocal(line);
    const StackGuard guard(lua_);
    const bool silent = absl::EndsWith(absl::StripTrailingAsciiWhitespace(text), ";");
    const std::string body(absl::StripSuffix(absl::StripTrailingAsciiWhitespace(text), ";"));
    const std::string expression = absl::StrCat("return ", body);
    if (luaL_loadbuffer(lua_, expression.data(), expression.size(), "=stdin") != 0) {
      lua_pop(lua_, 1);
      if (luaL_loadbuffer(lua_, text.data(), text.size(), "=stdin") != 0) {
        const std::string message = lua_tostring(lua_, -1);
        if (absl::EndsWith(message, "near '<eof>'")) return false;
        Error(message);
        return true;
      }
    }
    const int before = lua_gettop(lua_) - 1;
    const Status status = session_.Call(0, LUA_MULTRET);
    if (!status.ok()) {
      Error(status.message());
      return true;
    }
    const int results = lua_gettop(lua_) - before;
    if (results == 0) return true;
    lua_pushvalue(lua_, before + 1);
    lua_setglobal(lua_, "_");
    if (silent) return true;
    for (int i = 1; i <= results; ++i) {
      lua_pushvalue(lua_, before + i);
      std::printf("%s%s", i > 1 ? "\t" : "", ToText().c_str());
    }
    std::printf("\n");
    std::fflush(stdout);
    return true;
  }

  Session& session_;
  lua_State* lua_;
  const bool terminal_;
  int errors_ = 0;
};

}  // namespace

int RunRepl(const cli::CommandLine& command) {
  auto session = Session::Create(OptionsOf(command));
  if (!session.ok()) return Report(session.status());
  // With a recipe its parts are in scope.
  const char* parts = command.positional.empty()
                          ? ""
                          : " recipe = require('mslua.verbs').load() net = recipe:make_network() "
                            "dataset = recipe:make_dataset 'dataset' loss = recipe.loss";
  const Status opened =
      (*session)->RunText(absl::StrCat("ms = require 'mslua' nn, ops = ms.nn, ms.ops", parts), "=mslua/repl");
  if (!opened.ok()) return Report(opened);
  return Repl(**session).Run() == 0 || isatty(0) ? 0 : 1;
}

}  // namespace mslua
