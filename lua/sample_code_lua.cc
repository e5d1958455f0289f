#include "lua/sample_code_lua.h"

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/parallel_for.h"
#include "core/base/rng.h"
#include "lua/object.h"
#include "lua/tensor_lua.h"
#include "luajit-2.1/lua.hpp"

namespace mslua {
namespace {

using data::CodeArguments;

const char kOpenerKey = 0;

// The functions that worker.lua gives, in a state of their own.
class LuaSampleFunction : public data::SampleFunction {
 public:
  static StatusOr<std::unique_ptr<LuaSampleFunction>> Start(const SampleFile& file, SessionOpener open,
                                                            void (*prepare)(lua_State*) = nullptr) {
    SessionOptions options;
    options.verb = "worker";
    options.file = file.path;
    options.has_seed = true;
    options.seed = file.seed;
    options.traceback = file.traceback;
    ASSIGN_OR_RETURN(auto session, open(std::move(options)));
    auto function = std::make_unique<LuaSampleFunction>(file, std::move(session));
    if (prepare != nullptr) prepare(function->session_->lua());
    RETURN_IF_ERROR(function->Load());
    return StatusOr<std::unique_ptr<LuaSampleFunction>>(std::move(function));
  }

  LuaSampleFunction(const SampleFile& file, std::unique_ptr<Session> session)
      : file_(file), session_(std::move(session)) {}

  int64_t length() const override { return length_; }

  Status Call(const CodeArguments& arguments, std::vector<TensorView>* results) override {
    lua_State* L = session_->lua();
    const StackGuard guard(L);
    const int base = lua_gettop(L);
    uint64_t key = arguments.key;
    if (arguments.index >= 0) key = UniformIntAt(file_.seed, StreamOf("data/generator"), key, uint64_t{1} << 53);
    session_->state().seed = key;
    session_->random_tensors = 0;
    lua_rawgeti(L, LUA_REGISTRYINDEX, call_);
    lua_pushnumber(L, static_cast<double>(key));
    int count = 1;
    if (arguments.index >= 0) lua_pushnumber(L, static_cast<double>(arguments.index + 1)), ++count;
    if (!lua_checkstack(L, static_cast<int>(arguments.columns.size()) + 8))
      return absl::ResourceExhaustedError("Lua's stack is full");
    for (const TensorView& column : arguments.columns) {
      // The function may keep the tensor, so that it gets memory of its own.
      ASSIGN_OR_RETURN(Tensor t, NewTensor(session_->allocator(), column.type));
      std::memcpy(t.data.get(), column.data, static_cast<size_t>(column.type.bytes()));
      PushObject<Tensor>(L, std::move(t));
      ++count;
    }
    RETURN_IF_ERROR(session_->Call(count, LUA_MULTRET));
    RETURN_IF_ERROR(ReadResults(base, results));
    return arguments.frozen ? CheckNothingDrawn() : absl::OkStatus();
  }

 private:
  Status Load() {
    lua_State* L = session_->lua();
    const StackGuard guard(L);
    lua_getglobal(L, "require");
    lua_pushliteral(L, "mslua.dataset.worker");
    RETURN_IF_ERROR(session_->Call(1, 1));
    lua_getfield(L, -1, "start");
    if (luaL_loadbuffer(L, file_.text.data(), file_.text.size(), ("@" + file_.path).c_str()) != 0)
      return absl::InvalidArgumentError(lua_tostring(L, -1));
    PushString(L, file_.path);
    PushString(L, file_.arguments);
    RETURN_IF_ERROR(session_->Call(3, 3));
    if (!lua_isnil(L, -1)) {
      ASSIGN_OR_RETURN(length_, ReadInt(L, -1, absl::StrCat(file_.path, ": length")));
    }
    lua_pop(L, 1);
    drawn_ = luaL_ref(L, LUA_REGISTRYINDEX);
    call_ = luaL_ref(L, LUA_REGISTRYINDEX);
    return absl::OkStatus();
  }

  // The values above `base`, a column each.
  Status ReadResults(int base, std::vector<TensorView>* results) {
    lua_State* L = session_->lua();
    kept_.clear();
    results->clear();
    for (int i = base + 1; i <= lua_gettop(L); ++i) {
      ASSIGN_OR_RETURN(Tensor t, ReadTensor(*session_, L, i, absl::nullopt,
                                            absl::StrCat(file_.path, ": the function's value ", i - base)));
      kept_.push_back(std::move(t));
    }
    for (const Tensor& t : kept_) results->push_back(t.view());
    return absl::OkStatus();
  }

  Status CheckNothingDrawn() {
    lua_State* L = session_->lua();
    lua_rawgeti(L, LUA_REGISTRYINDEX, drawn_);
    RETURN_IF_ERROR(session_->Call(0, 1));
    if (session_->random_tensors == 0 && !lua_toboolean(L, -1)) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(file_.path,
                     ": the function draws random numbers, and would give the same ones in every epoch: "
                     "call map with it after zip, concat or cache"));
  }

  const SampleFile file_;
  const std::unique_ptr<Session> session_;
  int64_t length_ = -1;
  int call_ = LUA_NOREF, drawn_ = LUA_NOREF;
  std::vector<Tensor> kept_;
};

// What a thread that runs a call again tells about its place.
struct Trail {
  std::mutex mutex;
  std::condition_variable changed;
  std::string line;  // "augment.lua:7", the last seen
  bool ended = false;
  std::chrono::steady_clock::time_point until;
};
thread_local Trail* trail = nullptr;  // of the thread that Locate starts

// A hook: notes the user's line, and ends the call when its time is over.
void NoteLine(lua_State* L, lua_Debug*) {
  lua_Debug frame;
  for (int level = 0; lua_getstack(L, level, &frame) != 0; ++level) {
    lua_getinfo(L, "Sl", &frame);
    if (frame.currentline <= 0 || absl::StartsWith(frame.short_src, "mslua/")) continue;
    const std::lock_guard<std::mutex> lock(trail->mutex);
    trail->line = absl::StrCat(frame.source[0] == '@' ? frame.source + 1 : frame.short_src, ":", frame.currentline);
    break;
  }
  if (std::chrono::steady_clock::now() > trail->until) luaL_error(L, "the call was only run to find its line");
}

class LuaSampleCode : public data::SampleCode {
 public:
  LuaSampleCode(SampleFile file, SessionOpener open) : file_(std::move(file)), open_(open) {}

  StatusOr<std::unique_ptr<data::SampleFunction>> Start() const override {
    ASSIGN_OR_RETURN(auto function, LuaSampleFunction::Start(file_, open_));
    return std::unique_ptr<data::SampleFunction>(std::move(function));
  }
  std::string name() const override { return file_.path; }
  std::string identity() const override {
    return absl::StrCat(file_.path.size(), ":", file_.path, file_.arguments.size(), ":", file_.arguments, file_.text);
  }
  double limit_seconds() const override { return file_.limit_seconds; }

  // Compiled loops of LuaJIT look at no hook. So the call is made again, in a state that interprets, for two seconds.
  std::string Locate(const CodeArguments& arguments) const override {
    static constexpr auto kLoad = std::chrono::seconds(10), kTime = std::chrono::seconds(2);
    auto shared = std::make_shared<Trail>();
    shared->until = std::chrono::steady_clock::now() + kLoad;
    std::thread([shared, arguments, file = file_, open = open_] {
      SetComputeThreads(1);
      trail = shared.get();
      const auto watch = [](lua_State* L) {
        luaJIT_setmode(L, 0, LUAJIT_MODE_ENGINE | LUAJIT_MODE_OFF);
        lua_sethook(L, NoteLine, LUA_MASKCOUNT, 1000);
      };
      auto function = LuaSampleFunction::Start(file, open, watch);
      std::vector<TensorView> unused;
      shared->until = std::chrono::steady_clock::now() + kTime;
      if (function.ok()) (*function)->Call(arguments, &unused).IgnoreError();
      const std::lock_guard<std::mutex> lock(shared->mutex);
      shared->ended = true;
      shared->changed.notify_one();
    }).detach();
    std::unique_lock<std::mutex> lock(shared->mutex);
    shared->changed.wait_for(lock, kLoad + kTime, [&] { return shared->ended; });
    return shared->line.empty() ? file_.path : shared->line;
  }

 private:
  const SampleFile file_;
  const SessionOpener open_;
};

}  // namespace

void SetSessionOpener(lua_State* L, SessionOpener open) {
  lua_pushlightuserdata(L, const_cast<char*>(&kOpenerKey));
  *static_cast<SessionOpener*>(lua_newuserdata(L, sizeof(SessionOpener))) = open;
  lua_rawset(L, LUA_REGISTRYINDEX);
}

SessionOpener SessionOpenerOf(lua_State* L) {
  const StackGuard guard(L);
  lua_pushlightuserdata(L, const_cast<char*>(&kOpenerKey));
  lua_rawget(L, LUA_REGISTRYINDEX);
  const void* kept = lua_touserdata(L, -1);
  return kept == nullptr ? nullptr : *static_cast<const SessionOpener*>(kept);
}

std::shared_ptr<const data::SampleCode> MakeSampleCode(SampleFile file, SessionOpener open) {
  return std::make_shared<LuaSampleCode>(std::move(file), open);
}

}  // namespace mslua
