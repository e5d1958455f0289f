#include "repl/chunk.h"

#include <cctype>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "luajit-2.1/lua.hpp"

namespace mslua::repl {
namespace {

// Lua's tokens, as far as finding `local` needs them.
class Lexer {
 public:
  explicit Lexer(absl::string_view text) : text_(text) {}

  // The next token; empty at the end. Strings and comments are passed over as a whole (a string is "\"").
  absl::string_view Next() {
    while (at_ < text_.size() && (IsSpace(text_[at_]) || SkipComment())) {
      if (at_ < text_.size() && IsSpace(text_[at_])) ++at_;
    }
    begin_ = at_;
    if (at_ >= text_.size()) return "";
    const char c = text_[at_];
    if (std::isalpha(static_cast<unsigned char>(c)) || c == '_') {
      while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) || text_[at_] == '_')) ++at_;
    } else if (c == '"' || c == '\'') {
      SkipString(c);
      return "\"";
    } else if (c == '[' && SkipLong()) {
      return "\"";
    } else {
      at_ += absl::StartsWith(text_.substr(at_), "==") ? 2 : 1;
    }
    return text_.substr(begin_, at_ - begin_);
  }
  size_t begin() const { return begin_; }  // of the last token
  size_t end() const { return at_; }

 private:
  static bool IsSpace(char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; }

  void SkipString(char quote) {
    for (++at_; at_ < text_.size() && text_[at_] != quote; ++at_) at_ += text_[at_] == '\\' ? 1 : 0;
    at_ = std::min(text_.size(), at_ + 1);
  }

  // [[...]], [=[...]=]
  bool SkipLong() {
    size_t level = 0;
    while (at_ + 1 + level < text_.size() && text_[at_ + 1 + level] == '=') ++level;
    if (at_ + 1 + level >= text_.size() || text_[at_ + 1 + level] != '[') return false;
    const size_t close = text_.find(absl::StrCat("]", std::string(level, '='), "]"), at_ + level + 2);
    at_ = close == absl::string_view::npos ? text_.size() : close + level + 2;
    return true;
  }

  bool SkipComment() {
    if (!absl::StartsWith(text_.substr(at_), "--")) return false;
    at_ += 2;
    if (at_ < text_.size() && text_[at_] == '[' && SkipLong()) return true;
    while (at_ < text_.size() && text_[at_] != '\n') ++at_;
    return true;
  }

  const absl::string_view text_;
  size_t begin_ = 0, at_ = 0;
};

bool IsName(absl::string_view token) {
  return !token.empty() && (std::isalpha(static_cast<unsigned char>(token[0])) || token[0] == '_');
}

}  // namespace

std::string KeepLocals(absl::string_view text) {
  Lexer lexer(text);
  std::string out;
  size_t copied = 0;
  int depth = 0;
  absl::string_view token = lexer.Next();
  while (!token.empty()) {
    // `for` and `while` have their `do`; `elseif` and `else` open nothing.
    if (token == "do" || token == "function" || token == "if" || token == "repeat") ++depth;
    if (token == "end" || token == "until") --depth;
    if (token != "local" || depth > 0) {
      token = lexer.Next();
      continue;
    }
    absl::StrAppend(&out, text.substr(copied, lexer.begin() - copied));
    token = lexer.Next();
    copied = lexer.begin();
    if (!IsName(token) || token == "function") continue;
    size_t names_end = lexer.end();
    for (token = lexer.Next(); token == ","; token = lexer.Next()) {
      lexer.Next();
      names_end = lexer.end();
    }
    if (token == "=") continue;
    absl::StrAppend(&out, text.substr(copied, names_end - copied), " = nil");
    copied = names_end;
  }
  return absl::StrCat(out, text.substr(copied));
}

Status Load(lua_State* L, absl::string_view text, const std::string& chunk_name, bool* complete) {
  *complete = true;
  const std::string name = "=" + chunk_name;
  const std::string expression =
      absl::StrCat("return ", absl::StripSuffix(absl::StripTrailingAsciiWhitespace(text), ";"));
  if (luaL_loadbuffer(L, expression.data(), expression.size(), name.c_str()) != 0) {
    lua_pop(L, 1);
    const std::string kept = KeepLocals(text);
    if (luaL_loadbuffer(L, kept.data(), kept.size(), name.c_str()) != 0) {
      const std::string message = lua_tostring(L, -1);
      lua_pop(L, 1);
      *complete = !absl::EndsWith(message, "near '<eof>'");
      return *complete ? absl::InvalidArgumentError(message) : absl::OkStatus();
    }
  }
  luaJIT_setmode(L, -1, LUAJIT_MODE_ALLFUNC | LUAJIT_MODE_OFF);
  return absl::OkStatus();
}

}  // namespace mslua::repl
