// The scheduler's state: workers that come, say anything in any order, and go. It ends, and without an error only when
// all workers have come and all have left.
#include <stdlib.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "rendezvous/scheduler.h"

namespace {

using mslua::ControlMessage;
using Type = ControlMessage::Type;

constexpr int kWorkers = 2;

// One folder of sockets for the run.
const std::string& Folder() {
  static const std::string* const folder = [] {
    char path[] = "/tmp/mslua-test-XXXXXX";
    if (mkdtemp(path) == nullptr) std::abort();
    setenv("XDG_RUNTIME_DIR", path, 1);
    static std::string name;
    name = path;
    std::atexit([] { (void)!system(absl::StrCat("rm -rf ", name).c_str()); });
    return &name;
  }();
  return *folder;
}

class Script {
 public:
  Script(const uint8_t* data, size_t size) : text_(reinterpret_cast<const char*>(data), size) {}
  bool done() const { return text_.empty(); }
  int Number() {
    if (text_.empty()) return 0;
    const int n = static_cast<uint8_t>(text_[0]);
    text_.remove_prefix(1);
    return n;
  }
  std::string Text() {
    const std::string taken(text_.substr(0, static_cast<size_t>(Number()) % 16));
    text_.remove_prefix(std::min(taken.size(), text_.size()));
    return taken;
  }

 private:
  absl::string_view text_;
};

ControlMessage MessageOf(Script& script) {
  static constexpr const char* kNames[] = {"id",    "host", "code", "why",      "name",
                                           "value", "to",   "rank", "endpoint", "hash.recipe"};
  ControlMessage message;
  // Joins are many: without them nothing happens.
  const int type = script.Number();
  message.type = type >= 128 ? Type::kJoin : static_cast<Type>(type % 15);
  for (int fields = script.Number() % 4; fields > 0; --fields) {
    const std::string name = kNames[script.Number() % 10];
    message.fields[name] = script.Text();
  }
  return message;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  (void)Folder();
  std::map<int, mslua::Fd> sockets;
  std::set<int> left;  // connections that have sent a kLeave
  Script script(data, size);
  mslua::Scheduler* running = nullptr;
  std::string path;
  // One step of the script, between two turns of the scheduler. False: there may be nothing to read.
  const auto step = [&] {
    const int which = script.Number() % 4, what = script.Number() % 8;
    if (what == 0) {
      sockets.erase(which);
      return false;  // the scheduler may have closed it already
    }
    mslua::Fd& socket = sockets[which];
    if (!socket) {
      auto connected = mslua::ConnectMeeting(path);
      if (!connected.ok()) std::abort();
      socket = std::move(*connected);
    }
    const ControlMessage message = MessageOf(script);
    std::string bytes = mslua::EncodeControl(message);
    if (what == 1) bytes.resize(bytes.size() / 2);
    if (message.type == Type::kLeave) left.insert(which);
    return send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT) > 0;
  };
  int turns = 0;
  mslua::SchedulerOptions options;
  options.meeting = "meet-fuzz";
  options.workers = kWorkers;
  options.on_turn = [&] {
    while (!script.done() && ++turns < 60) {
      if (step()) return;  // which this turn reads
    }
    running->Fail(mslua::WithCause(absl::CancelledError("the script is over"), {-1, mslua::kExitInternal}));
  };
  options.on_over = [&] { sockets.clear(); };
  auto scheduler = mslua::Scheduler::Make(options);
  if (!scheduler.ok()) std::abort();
  running = scheduler->get();
  path = running->endpoint().host;
  const mslua::Status outcome = running->RunHere();
  if (outcome.ok() && (!running->built() || left.size() < kWorkers)) std::abort();
  if (!outcome.ok() && mslua::CauseOf(outcome).exit_code == 0) std::abort();
  return 0;
}
