#include "repl/loop.h"

#include <chrono>
#include <cstdio>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "lua/object.h"
#include "repl/chunk.h"
#include "repl/describe.h"
#include "repl/help.h"
#include "repl/interrupt.h"
#include "repl/show.h"

namespace mslua::repl {
namespace {

void PushList(lua_State* L, const std::vector<std::string>& list) {
  lua_createtable(L, static_cast<int>(list.size()), 0);
  for (size_t i = 0; i < list.size(); ++i) {
    PushString(L, list[i]);
    lua_rawseti(L, -2, static_cast<int>(i) + 1);
  }
}

}  // namespace

Loop::Loop(Session& session, Extension extension)
    : session_(session),
      extension_(std::move(extension)),
      editor_(
          LineEditor::Create([this](const std::string& before) { return Complete(before); }, extension_.background)) {}

int Loop::Run() {
  const InterruptScope interrupts;
  if (extension_.lines.empty())
    RunInput();
  else
    RunLines();
  return errors_;
}

void Loop::RunLines() {
  for (const std::string& line : extension_.lines) {
    std::string pending;
    if (!Take(line, &pending) || leave_) return;
    if (!pending.empty()) Error(absl::StrCat("-e: the statement is not complete: ", pending));
    if (errors_ > 0) return;
  }
}

void Loop::RunInput() {
  std::string line, pending;
  while (!leave_) {
    const std::string name = extension_.prompt ? extension_.prompt() : "";
    const auto result = editor_->ReadLine(pending.empty() ? name + "> " : std::string(name.size(), ' ') + ">> ", &line);
    if (result == LineEditor::Result::kEnd) break;
    if (result == LineEditor::Result::kInterrupted) {
      pending.clear();
      continue;
    }
    if (!Take(line, &pending)) return;
  }
  if (!pending.empty()) Error("stdin: the last statement is not complete");
}

bool Loop::Take(const std::string& line, std::string* pending) {
  if (pending->empty()) {
    const absl::string_view text = absl::StripAsciiWhitespace(line);
    if (text == ".quit" || text == ".exit") return false;
    if (text.empty() || Command(text)) return true;
  }
  *pending += pending->empty() ? line : absl::StrCat("\n", line);
  if (Evaluate(*pending)) pending->clear();
  return true;
}

void Loop::Error(absl::string_view message) {
  ++errors_;
  if (extension_.report) return extension_.report(message);
  std::fflush(stdout);
  std::fprintf(stderr, "%s\n", std::string(message).c_str());
}

bool Loop::Command(absl::string_view text) {
  if (text[0] == '?') {
    const auto described = DescribeName(session_, absl::StripAsciiWhitespace(text.substr(1)));
    if (described.ok())
      std::printf("%s\n", described->c_str());
    else
      Error(described.status().message());
  } else if (text == ".help") {
    std::printf("%s%s", LoopHelp().c_str(), extension_.help.c_str());
  } else if (text == ".timer" || text == ".timer on" || text == ".timer off") {
    timer_ = text == ".timer" ? !timer_ : text == ".timer on";
    std::printf("timer %s\n", timer_ ? "on" : "off");
  } else if (text[0] == '.' || text[0] == '@') {
    const Status done = extension_.command
                            ? extension_.command(text)
                            : absl::NotFoundError(absl::StrCat("unknown command ", text, " (.help lists them)"));
    leave_ = absl::IsCancelled(done);
    if (!done.ok() && !leave_) Error(done.message());
  } else {
    return false;
  }
  std::fflush(stdout);
  return true;
}

bool Loop::Evaluate(const std::string& text) {
  lua_State* L = session_.lua();
  const StackGuard guard(L);
  bool complete = true;
  const Status loaded = Load(L, text, "stdin", &complete);
  if (!complete) return false;
  if (!loaded.ok()) {
    Error(loaded.message());
    return true;
  }
  const int before = lua_gettop(L) - 1;
  const auto start = std::chrono::steady_clock::now();
  const Status status = Call(text);
  const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  const int results = status.ok() ? lua_gettop(L) - before : 0;
  if (!status.ok()) Error(status.message());
  if (results > 0) {
    // Raw: what the user made of _G's metatable may raise, and nothing would catch it here.
    lua_pushliteral(L, "_");
    lua_pushvalue(L, before + 1);
    lua_rawset(L, LUA_GLOBALSINDEX);
    if (!absl::EndsWith(absl::StripTrailingAsciiWhitespace(text), ";")) PrintResults(before + 1, results);
  }
  if (timer_) std::printf(ms < 1000 ? "(%.3g ms)\n" : "(%.4g ms)\n", ms);
  std::fflush(stdout);
  return true;
}

// Runs the function on the stack, which `text` became; on all ranks where there are some.
Status Loop::Call(const std::string& text) {
  lua_State* L = session_.lua();
  if (!extension_.begin) {
    InterruptLua(L);
    const Status status = session_.Call(0, LUA_MULTRET);
    InterruptLua(nullptr);
    return status;
  }
  InterruptLua(nullptr);
  RETURN_IF_ERROR(extension_.begin(text));
  const Status status = session_.Call(0, LUA_MULTRET);
  for (const std::string& error : extension_.end(status)) Error(error);
  lua_sethook(L, nullptr, 0, 0);
  InterruptLua(nullptr);
  return status;
}

void Loop::PrintResults(int first, int count) {
  for (int i = 0; i < count; ++i)
    std::printf("%s%s", i > 0 ? "\t" : "", Show(session_, session_.lua(), first + i).c_str());
  std::printf("\n");
}

Completions Loop::Complete(const std::string& before) {
  Completions found;
  lua_State* L = session_.lua();
  const StackGuard guard(L);
  if (!session_.RunText("return require('mslua.complete').complete", "=mslua/repl").ok()) return found;
  std::vector<std::string> commands = {".help", ".quit", ".timer"};
  commands.insert(commands.end(), extension_.commands.begin(), extension_.commands.end());
  std::vector<std::string> parameters;
  if (extension_.parameters) {
    parameters = extension_.parameters();
  } else {
    for (const auto& entry : session_.state().store.entries()) parameters.push_back(entry->name);
  }
  PushString(L, before);
  PushList(L, commands);
  PushList(L, parameters);
  if (!session_.Call(3, 2).ok() || lua_type(L, -1) != LUA_TTABLE) return found;
  found.length = static_cast<size_t>(lua_tonumber(L, -2));
  for (int i = 1; i <= static_cast<int>(lua_objlen(L, -1)); ++i) {
    lua_rawgeti(L, -1, i);
    found.words.emplace_back(lua_tostring(L, -1));
    lua_pop(L, 1);
  }
  return found;
}

}  // namespace mslua::repl
