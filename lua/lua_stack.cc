#include "lua/lua_stack.h"

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "absl/strings/str_cat.h"
#include "attach/server/stack.h"
#include "luajit-2.1/lua.hpp"

namespace mslua {
namespace {

// Filled by a hook, which reaches nothing but statics.
std::mutex mutex;
std::condition_variable answered;
std::string answer;
bool wanted = false;

void Describe(lua_State* L, lua_Debug*) {
  lua_sethook(L, nullptr, 0, 0);
  luaL_traceback(L, L, nullptr, 0);
  const std::lock_guard<std::mutex> lock(mutex);
  if (wanted) answer = lua_tostring(L, -1);
  wanted = false;
  lua_pop(L, 1);
  answered.notify_all();
}

}  // namespace

std::shared_ptr<const Location> WhereDefined(lua_State* L) {
  auto location = std::make_shared<Location>();
  lua_Debug info;
  lua_pushvalue(L, -1);
  lua_getinfo(L, ">S", &info);
  location->file = info.source[0] == '@' || info.source[0] == '=' ? info.source + 1 : info.short_src;
  location->line = info.linedefined;
  return location;
}

LuaWhereabouts& WhereaboutsOf(lua_State* L) {
  static const char key = 0;
  lua_pushlightuserdata(L, const_cast<char*>(&key));
  lua_rawget(L, LUA_REGISTRYINDEX);
  if (lua_isnil(L, -1)) {
    lua_pop(L, 1);
    lua_pushlightuserdata(L, const_cast<char*>(&key));
    new (lua_newuserdata(L, sizeof(LuaWhereabouts))) LuaWhereabouts(nullptr);
    lua_pushvalue(L, -1);
    lua_insert(L, -3);
    lua_rawset(L, LUA_REGISTRYINDEX);
  }
  auto* whereabouts = static_cast<LuaWhereabouts*>(lua_touserdata(L, -1));
  lua_pop(L, 1);
  return *whereabouts;
}

std::string ToString(const LuaWhereabouts& running) {
  const Location* at = running.load(std::memory_order_relaxed);
  return at == nullptr ? "" : absl::StrCat(at->file, ":", at->line);
}

std::string AskLuaStack(lua_State* L, const LuaWhereabouts& running, pthread_t thread) {
  if (running.load() == nullptr) return "";
  constexpr auto kLimit = std::chrono::milliseconds(300);
  {
    const std::lock_guard<std::mutex> lock(mutex);
    wanted = true;
    answer.clear();
  }
  // The one call of Lua's that a signal handler may make.
  const auto set_hook = [](void* L, const void*) {
    lua_sethook(static_cast<lua_State*>(L), Describe, LUA_MASKCALL | LUA_MASKRET | LUA_MASKCOUNT, 1);
  };
  if (!endpoint::RunInSignalHandler(thread, set_hook, L, absl::Milliseconds(300))) return "";
  std::unique_lock<std::mutex> lock(mutex);
  answered.wait_for(lock, kLimit, [] { return !wanted; });
  wanted = false;
  std::string text;
  for (const char c : answer) {
    if (c != '\t') text += c;
  }
  return text.empty() ? text : text + "\n";
}

}  // namespace mslua
