#include "lua/session.h"

#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "collectives/groups.h"
#include "core/base/exit_code.h"
#include "core/base/processor.h"
#include "core/device/device.h"
#include "core/step/located_status.h"
#include "launch/process.h"
#include "lua/embedded.h"
#include "lua/lua_stack.h"
#include "lua/object.h"
#include "lua/options.h"
#include "luajit-2.1/lua.hpp"

namespace mslua {
namespace {

// Chunks of the library are called "=mslua/nn/cells/dense.lua": Lua then names them so in messages.
constexpr char kLibraryPrefix[] = "mslua/";

const char kSessionKey = 0;
constexpr char kTracebackPayload[] = "mslua/traceback";

bool InLibrary(const char* short_source) { return absl::StartsWith(short_source, kLibraryPrefix); }

// A searcher of package.loaders: the embedded library.
int SearchEmbedded(lua_State* L) {
  const char* name = lua_tostring(L, 1);
  const EmbeddedChunk* chunk = name == nullptr ? nullptr : FindEmbedded(name);
  if (chunk == nullptr) {
    lua_pushfstring(L, "\n\tno module '%s' in mslua", name == nullptr ? "?" : name);
    return 1;
  }
  lua_pushfstring(L, "=%s", chunk->path);
  if (luaL_loadbuffer(L, chunk->source.data(), chunk->source.size(), lua_tostring(L, -1)) != 0) return lua_error(L);
  return 1;
}

// Puts what mslua.class knows of a call of nothing into the message at 1.
void ExplainCall(lua_State* L) {
  lua_getfield(L, LUA_REGISTRYINDEX, "_LOADED");
  lua_getfield(L, -1, "mslua.class");
  if (lua_type(L, -1) == LUA_TTABLE) {
    lua_getfield(L, -1, "explain_call");
    lua_pushvalue(L, 1);
    if (lua_pcall(L, 1, 1, 0) == 0 && lua_type(L, -1) == LUA_TSTRING) lua_replace(L, 1);
  }
  lua_settop(L, 1);
}

// Calls mslua.frames' function of that name; true with its `results` results on the stack.
bool AskFrames(lua_State* L, const char* name, int results) {
  const int top = lua_gettop(L);
  if (!lua_checkstack(L, 16)) return false;
  lua_getfield(L, LUA_REGISTRYINDEX, "_LOADED");
  lua_getfield(L, -1, "mslua.frames");
  lua_remove(L, -2);
  if (lua_type(L, -1) == LUA_TTABLE) {
    lua_getfield(L, -1, name);
    lua_remove(L, -2);
    if (lua_pcall(L, 0, results, 0) == 0) return true;
  }
  lua_settop(L, top);
  return false;
}

// An error of Lua. A function that catches errors may raise again, as text, that there was no memory.
Status StatusOfLua(int code, const std::string& text) {
  if (code == LUA_ERRMEM || absl::EndsWith(text, "not enough memory"))
    return WithExitCode(absl::ResourceExhaustedError(text), kExitEnvironment);
  return absl::InvalidArgumentError(text);
}

// The file and line that mslua.frames' function of that name gives; false when it knows none.
bool AskPlace(lua_State* L, const char* name, Location* place) {
  const StackGuard guard(L);
  if (!AskFrames(L, name, 2) || lua_type(L, -2) != LUA_TSTRING) return false;
  place->file = lua_tostring(L, -2);
  place->line = static_cast<int>(lua_tonumber(L, -1));
  return true;
}

// Whether the function of the frame is one of the library that calls functions of users.
bool CallsUsers(lua_State* L, lua_Debug* frame) {
  const StackGuard guard(L);
  if (!lua_checkstack(L, 16)) return false;
  lua_getfield(L, LUA_REGISTRYINDEX, "_LOADED");
  lua_getfield(L, -1, "mslua.frames");
  if (lua_type(L, -1) != LUA_TTABLE) return false;
  lua_getfield(L, -1, "is_point");
  lua_getinfo(L, "f", frame);
  return lua_pcall(L, 1, 1, 0) == 0 && lua_toboolean(L, -1);
}

// What Lua says of < and <= between values that it does not compare, as the users' mistake that it is; else empty.
std::string ExplainComparison(const std::string& message, bool tracing) {
  const size_t at = message.find("attempt to compare ");
  if (at == std::string::npos || !absl::StrContains(message, "userdata")) return "";
  return absl::StrCat(message.substr(0, at),
                      tracing ? "a traced value is compared in Lua: while the graph is traced it has no elements; use "
                                "ops.less(x, y) or ops.greater(x, y), and ops.select(condition, a, b) for the choice"
                              : "a tensor is compared with a value of another kind: Lua cannot compare these; use "
                                "ops.less(x, y) or ops.greater(x, y) for the elements, x:item() for one number");
}

}  // namespace

std::string TracebackOf(const Status& status) {
  const auto frames = status.GetPayload(kTracebackPayload);
  return frames ? std::string(*frames) : "";
}

// Handler of errors, which sees the stack as it was: the message gets the user's line, where it has none, and the cell.
int Session::OnError(lua_State* L) {
  if (lua_type(L, 1) != LUA_TSTRING) {
    if (!luaL_callmeta(L, 1, "__tostring")) lua_pushfstring(L, "error object is a %s", luaL_typename(L, 1));
    return 1;
  }
  Session& session = Session::Of(L);
  if (session.explained == lua_tostring(L, 1)) return 1;
  for (const char* known : {"attempt to call ", "attempt to index ", "expected, got userdata)"}) {
    if (!absl::StrContains(lua_tostring(L, 1), known)) continue;
    ExplainCall(L);
    break;
  }
  session.explained = session.Explain(L, lua_tostring(L, 1));
  PushString(L, session.explained);
  return 1;
}

std::string Session::Explain(lua_State* L, std::string message) {
  traceback_.clear();
  const std::string comparison = ExplainComparison(message, trace != nullptr);
  if (!comparison.empty()) message = comparison;
  const bool overflow = absl::EndsWith(message, "stack overflow");
  if (overflow || InLibrary(message.c_str())) {
    const auto where = FindCaller(/*ask_frames=*/!overflow);
    if (!where->file.empty()) {
      message = absl::StrCat(
          where->file, ":", where->line, ": ",
          overflow ? "stack overflow: functions call each other, or one calls itself, without an end" : message);
    }
  }
  if (overflow) return message;  // Lua has no stack left to ask it for more
  const StackGuard guard(L);
  if (AskFrames(L, "path", 1) && lua_type(L, -1) == LUA_TSTRING) {
    const std::string cell = absl::StrCat(" (in ", lua_tostring(L, -1));
    const bool named = absl::StrContains(message, cell + ")") || absl::StrContains(message, cell + "/");
    if (!named) absl::StrAppend(&message, cell, ")");
  }
  if (options_.traceback && AskFrames(L, "traceback", 1) && lua_type(L, -1) == LUA_TSTRING)
    traceback_ = lua_tostring(L, -1);
  return message;
}

Session::Session(SessionOptions options)
    : options_(std::move(options)), allocator_(std::make_shared<TensorAllocator>()) {
  state_.rank = options_.rank;
  state_.ranks = options_.ranks;
  state_.groups = options_.groups;
  state_.seed = options_.seed;
}

StatusOr<std::unique_ptr<Session>> Session::Create(SessionOptions options) {
  FlushDenormals();  // before there are threads that compute
  if (options.device != "cpu") RETURN_IF_ERROR(Annotate(CheckDevices(), absl::StrCat("--device ", options.device)));
  auto session = std::unique_ptr<Session>(new Session(std::move(options)));
  RETURN_IF_ERROR(session->Open());
  return session;
}

Status Session::Open() {
  lua_ = luaL_newstate();
  if (lua_ == nullptr) return absl::ResourceExhaustedError("no memory for a Lua state");
  current_ = lua_;
  lua_State* L = lua_;
  luaL_openlibs(L);
  lua_pushlightuserdata(L, const_cast<char*>(&kSessionKey));
  lua_pushlightuserdata(L, this);
  lua_rawset(L, LUA_REGISTRYINDEX);
  allocator_->SetPressure([L] { lua_gc(L, LUA_GCCOLLECT, 0); });

  lua_getglobal(L, "package");
  // The embedded library comes before files, so that no file on the path can stand in for a part of it.
  lua_getfield(L, -1, "loaders");
  for (int i = static_cast<int>(lua_objlen(L, -1)); i >= 2; --i) {
    lua_rawgeti(L, -1, i);
    lua_rawseti(L, -2, i + 1);
  }
  lua_pushcfunction(L, SearchEmbedded);
  lua_rawseti(L, -2, 2);
  lua_pop(L, 1);
  const size_t slash = options_.file.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : options_.file.substr(0, slash);
  PushString(L, absl::StrCat(folder, "/?.lua;", folder, "/?/init.lua"));
  lua_setfield(L, -2, "path");
  lua_pushliteral(L, "");
  lua_setfield(L, -2, "cpath");
  lua_pop(L, 1);

  lua_getglobal(L, "require");
  lua_pushliteral(L, "mslua.ordered_pairs");
  RETURN_IF_ERROR(Call(1, 1));
  lua_setglobal(L, "pairs");
  return absl::OkStatus();
}

void Session::NoteRaised(const Status& status) {
  // An empty message would be a part of every later text.
  if (ExitCodeIn(status) != kExitOk && !status.message().empty()) raised_ = status;
}

void Session::SetGroups(std::shared_ptr<Groups> groups) {
  SetPlace(groups->rank(), groups->size());
  state_.groups = std::move(groups);
}

void Session::SetPlace(int rank, int ranks) {
  state_.rank = rank;
  state_.ranks = ranks;
  lua_State* L = current_;
  lua_getfield(L, LUA_REGISTRYINDEX, kOptionsKey);
  if (lua_type(L, -1) == LUA_TTABLE) {  // else the library is not loaded yet
    lua_pushnumber(L, state_.rank);
    lua_setfield(L, -2, "rank");
    lua_pushnumber(L, state_.ranks);
    lua_setfield(L, -2, "ranks");
  }
  lua_pop(L, 1);
}

Session::~Session() {
  allocator_->SetPressure(nullptr);
  eager_programs.clear();
  if (lua_ != nullptr) lua_close(lua_);
}

Session& Session::Of(lua_State* L) {
  lua_pushlightuserdata(L, const_cast<char*>(&kSessionKey));
  lua_rawget(L, LUA_REGISTRYINDEX);
  auto* session = static_cast<Session*>(lua_touserdata(L, -1));
  lua_pop(L, 1);
  return *session;
}

Status Session::Call(int arguments, int results) {
  lua_State* L = current_;
  const int base = lua_gettop(L) - arguments;
  lua_pushcfunction(L, OnError);
  lua_insert(L, base);
  const int code = lua_pcall(L, arguments, results, base);
  lua_remove(L, base);
  if (code == 0) return absl::OkStatus();
  const char* message = lua_tostring(L, -1);
  std::string text = message == nullptr ? "error without a message" : message;
  lua_pop(L, 1);
  Status status = StatusOfLua(code, text);
  MarkLocated(&status);
  if (!raised_.ok() && absl::StrContains(text, raised_.message())) status = WithExitCode(status, ExitCodeIn(raised_));
  if (!traceback_.empty() && text == explained) status.SetPayload(kTracebackPayload, absl::Cord(traceback_));
  return status;
}

Status Session::RunFile(const std::string& path) {
  if (const int code = luaL_loadfile(lua_, path.c_str()); code != 0) {
    Status status = StatusOfLua(code, lua_tostring(lua_, -1));
    lua_pop(lua_, 1);
    return status;
  }
  // As Lua's own program: the file and its arguments are `arg`, too.
  lua_newtable(lua_);
  PushString(lua_, path);
  lua_rawseti(lua_, -2, 0);
  for (size_t i = 0; i < options_.args.size(); ++i) {
    PushString(lua_, options_.args[i]);
    lua_rawseti(lua_, -2, static_cast<int>(i) + 1);
  }
  lua_setglobal(lua_, "arg");
  for (const std::string& argument : options_.args) PushString(lua_, argument);
  return Call(static_cast<int>(options_.args.size()), LUA_MULTRET);
}

Status Session::RunText(absl::string_view code, const std::string& chunk_name) {
  if (const int error = luaL_loadbuffer(lua_, code.data(), code.size(), chunk_name.c_str()); error != 0) {
    Status status = StatusOfLua(error, lua_tostring(lua_, -1));
    lua_pop(lua_, 1);
    return status;
  }
  return Call(0, LUA_MULTRET);
}

void Session::OnLine(lua_State* L, lua_Debug* frame) {
  lua_getinfo(L, "S", frame);
  if (InLibrary(frame->short_src)) return;
  Session& session = Session::Of(L);
  session.followed_line_ = frame->currentline;
  const char* name = frame->source[0] == '@' || frame->source[0] == '=' ? frame->source + 1 : frame->short_src;
  if (session.followed_file_ != name) session.followed_file_ = name;
}

void Session::FollowLines(bool on) {
  following_ = on;
  followed_line_ = 0;
  lua_sethook(current_, on ? OnLine : nullptr, on ? LUA_MASKLINE : 0, 0);
}

void Session::SetLine(std::string file, int line) {
  followed_file_ = std::move(file);
  followed_line_ = line;
}

std::shared_ptr<const Location> Session::FindCaller(bool ask_frames) const {
  auto location = std::make_shared<Location>();
  if (following_ && followed_line_ > 0) {
    location->file = followed_file_;
    location->line = followed_line_;
    return location;
  }
  lua_Debug frame;
  for (int level = 0; lua_getstack(current_, level, &frame); ++level) {
    lua_getinfo(current_, "Sl", &frame);
    if (ask_frames && InLibrary(frame.short_src) && CallsUsers(current_, &frame)) {
      if (!AskPlace(current_, "where", location.get())) continue;
      return location;
    }
    if (frame.currentline <= 0 || InLibrary(frame.short_src)) continue;
    // Full paths: short_src shortens long ones.
    location->file = frame.source[0] == '@' || frame.source[0] == '=' ? frame.source + 1 : frame.short_src;
    location->line = frame.currentline;
    return location;
  }
  if (ask_frames && AskPlace(current_, "made", location.get())) return location;
  // A function that C++ has called and that ended in a tail call: where it begins.
  const Location* const running = WhereaboutsOf(current_).load(std::memory_order_relaxed);
  if (running != nullptr && !InLibrary(running->file.c_str())) return std::make_shared<Location>(*running);
  return location;
}

std::string Session::Located(const Status& status) const {
  std::string message(status.message());
  if (IsLocated(status)) return message;
  const auto where = Where();
  if (where->file.empty()) return message;
  const std::string prefix = absl::StrCat(where->file, ":", where->line, ": ");
  return absl::StartsWith(message, prefix) ? message : prefix + message;
}

Status CheckArgumentCount(lua_State* L, int most) {
  int n = lua_gettop(L);
  while (n > most && lua_isnil(L, n)) --n;
  if (n <= most) return absl::OkStatus();
  lua_Debug frame;
  const bool known = lua_getstack(L, 0, &frame) != 0 && lua_getinfo(L, "n", &frame) != 0 && frame.name != nullptr;
  const int self = known && absl::string_view(frame.namewhat) == "method" ? 1 : 0;
  return absl::InvalidArgumentError(absl::StrCat(known ? absl::StrCat(frame.name, ": ") : "", "takes ",
                                                 most == self ? "no" : absl::StrCat("at most ", most - self),
                                                 most - self == 1 ? " argument" : " arguments", ", got ", n - self));
}

StatusOr<int> CallGuarded(ApiFunction f, lua_State* L, Session& session) {
  try {
    return f(L, session);
  } catch (const std::exception&) {
    const Status status = StatusOfException();
    return WithExitCode(status, absl::IsResourceExhausted(status) ? kExitEnvironment : kExitInternal);
  }
}

void PushError(lua_State* L, Session& session, const Status& status) {
  session.NoteRaised(status);
  PushString(L, session.Located(status));
}

}  // namespace mslua
