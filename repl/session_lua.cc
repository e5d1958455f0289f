#include "repl/session_lua.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <cstdio>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "attach/server/lua_helper.h"
#include "core/base/exit_code.h"
#include "core/base/sandbox.h"
#include "lua/object.h"
#include "lua/open_session.h"
#include "lua/session.h"
#include "rendezvous/control.h"
#include "repl/chunk.h"
#include "repl/run_lua.h"
#include "repl/show.h"

namespace mslua {
namespace {

constexpr size_t kPacketBytes = (64 << 10) + kControlHeaderBytes;
constexpr size_t kMostOutput = 48 << 10;
constexpr rlim_t kMemory = rlim_t{512} << 20;

void Limit(int resource, rlim_t most) {
  const rlimit limit = {most, most};
  setrlimit(resource, &limit);
}

// What the process has mapped by now.
rlim_t MappedBytes() {
  std::FILE* f = std::fopen("/proc/self/statm", "re");
  long long pages = 0;
  const bool read = f != nullptr && std::fscanf(f, "%lld", &pages) == 1;
  if (f != nullptr) std::fclose(f);
  return read ? static_cast<rlim_t>(pages) * 4096 : rlim_t{1} << 30;
}

class Helper {
 public:
  explicit Helper(Session& session) : session_(session) {
    call_ = [this](const std::string& line) { return Call(line); };
  }

  Status Open() {
    RETURN_IF_ERROR(session_.RunText("ms = require 'mslua' nn, ops = ms.nn, ms.ops", "=mslua/session"));
    RETURN_IF_ERROR(repl::OpenRun(session_, &call_));
    // What is printed is part of the answer.
    lua_State* L = session_.lua();
    lua_pushlightuserdata(L, this);
    lua_pushcclosure(L, Print, 1);
    lua_setglobal(L, "print");
    // Lua offers no files, processes, C libraries or bytecode: modules come from the embedded library alone. The
    // sandbox (core/base/sandbox.h) holds also where Lua's own walls do not.
    return session_.RunText(
        "local all = package.loaders"  // preloaded, embedded, files and C libraries, mslua.models
        " package.loaders = { all[1], all[2], all[#all] }"
        " package.path, package.cpath, package.config = '', '', nil"
        " package.loadlib, package.searchpath = nil"
        " package.preload.ffi, package.loaded.ffi, package.loaded.io, package.loaded.debug = nil"
        " package.loaded.jit, package.loaded['jit.util'], package.loaded['jit.opt'] = nil"
        " package.preload.jit, package.preload['jit.util'], package.preload['jit.opt'] = nil"
        " io, debug, jit, loadfile, dofile, string.dump = nil"
        " local load_any = load"
        " function load(chunk, name, _, ...) return load_any(chunk, name, 't', ...) end"
        " function loadstring(chunk, name) return load_any(chunk, name, 't') end"
        " os = { time = os.time, clock = os.clock, date = os.date, difftime = os.difftime }"
        " package.loaded.os = os",
        "=mslua/session");
  }

  // `sandbox`: why no Lua may run, if it is not OK.
  int Serve(const Status& sandbox) {
    while (true) {
      ControlMessage message;
      if (!Receive(&message)) return kExitOk;
      if (message.type != ControlMessage::Type::kCommand) continue;
      Send({ControlMessage::Type::kAccept, {}});
      output_.clear();
      const Status done = sandbox.ok() ? Evaluate(message.fields["line"]) : sandbox;
      if (!done.ok()) absl::StrAppend(&output_, output_.empty() ? "" : "\n", done.message());
      if (output_.size() > kMostOutput) {
        output_.resize(kMostOutput);
        output_ += "\n... (more output than 48 KiB: the rest is left out)";
      }
      Send({ControlMessage::Type::kReply, {{"text", output_}, {"end", done.ok() ? "ok" : "error"}}});
      lua_gc(session_.lua(), LUA_GCCOLLECT, 0);
    }
  }

 private:
  static void Send(const ControlMessage& message) {
    const std::string packet = EncodeControl(message);
    send(endpoint::kHelperDescriptor, packet.data(), packet.size(), MSG_NOSIGNAL);
  }

  static bool Receive(ControlMessage* message) {
    std::string packet(kPacketBytes, 0);
    const ssize_t size = recv(endpoint::kHelperDescriptor, &packet[0], packet.size(), 0);
    if (size <= 0) return false;
    auto decoded = DecodeControl(absl::string_view(packet.data(), static_cast<size_t>(size)));
    if (!decoded.ok()) return false;
    *message = *std::move(decoded);
    return true;
  }

  // A command of ms.run, answered by the rank.
  StatusOr<std::string> Call(const std::string& line) {
    Send({ControlMessage::Type::kCommand, {{"line", line}}});
    ControlMessage message;
    if (!Receive(&message)) return absl::UnavailableError("the job has ended");
    if (message.fields["end"] == "ok") return message.fields["text"];
    return absl::FailedPreconditionError(message.fields["text"]);
  }

  // Lua's print, into the answer. It raises no error of C++ objects' making.
  static int Print(lua_State* L) {
    auto* self = static_cast<Helper*>(lua_touserdata(L, lua_upvalueindex(1)));
    if (self->output_.size() > kMostOutput) return luaL_error(L, "more output than 48 KiB");
    for (int i = 1; i <= lua_gettop(L); ++i)
      absl::StrAppend(&self->output_, i > 1 ? "\t" : "", repl::Show(self->session_, L, i));
    self->output_ += "\n";
    return 0;
  }

  Status Evaluate(const std::string& text) {
    lua_State* L = session_.lua();
    const StackGuard guard(L);
    bool complete = true;
    RETURN_IF_ERROR(repl::Load(L, text, "@", &complete));
    if (!complete) return absl::InvalidArgumentError("the statement is not complete");
    const int before = lua_gettop(L) - 1;
    RETURN_IF_ERROR(session_.Call(0, LUA_MULTRET));
    for (int i = before + 1; i <= lua_gettop(L); ++i)
      absl::StrAppend(&output_, i > before + 1 ? "\t" : "", repl::Show(session_, L, i));
    return absl::OkStatus();
  }

  Session& session_;
  repl::RunCall call_;
  std::string output_;
};

}  // namespace

std::optional<int> RunSessionLua(int argc, char** argv) {
  SessionOptions options;
  options.verb = "repl";
  if (argc != 4 || absl::string_view(argv[1]) != endpoint::kHelperArgument ||
      !absl::SimpleAtoi(argv[2], &options.rank) || !absl::SimpleAtoi(argv[3], &options.ranks))
    return std::nullopt;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  Limit(RLIMIT_CORE, 0);
  Limit(RLIMIT_FSIZE, 0);
  auto session = OpenSession(options);
  if (!session.ok()) return kExitInternal;
  Helper helper(**session);
  if (!helper.Open().ok()) return kExitInternal;
  Limit(RLIMIT_NOFILE, 8);
  Limit(RLIMIT_NPROC, 0);
  Limit(RLIMIT_AS, MappedBytes() + kMemory);
  return helper.Serve(EnterSandbox({endpoint::kHelperDescriptor, false}));
}

}  // namespace mslua
