// The scheduler's state: workers that come, say anything in any order, and go. It ends, and without an error only when
// all workers have come and all have left.
#include <linux/sockios.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "collectives/rendezvous.h"
#include "core/base/clock.h"

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
  mslua::SchedulerOptions options;
  options.meeting = "meet-fuzz";
  options.workers = kWorkers;
  std::atomic<bool> over{false};
  options.on_over = [&over] { over = true; };
  auto scheduler = mslua::Scheduler::Start(options);
  if (!scheduler.ok()) std::abort();
  std::map<int, mslua::Fd> sockets;
  std::set<int> left;  // connections that have sent a kLeave
  Script script(data, size);
  for (int steps = 0; steps < 40 && !script.done(); ++steps) {
    const int which = script.Number() % 4, what = script.Number() % 8;
    if (what == 0) {
      sockets.erase(which);
      continue;
    }
    mslua::Fd& socket = sockets[which];
    if (!socket) {
      auto connected = mslua::ConnectMeeting((*scheduler)->endpoint().host);
      if (!connected.ok()) break;
      socket = std::move(*connected);
    }
    const ControlMessage message = MessageOf(script);
    std::string bytes = mslua::EncodeControl(message);
    if (what == 1) bytes.resize(bytes.size() / 2);
    if (message.type == Type::kLeave) left.insert(which);
    (void)!send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  // Until it has read everything.
  const auto unread = [&sockets] {
    int bytes = 0, all = 0;
    for (const auto& entry : sockets) {
      if (ioctl(entry.second.get(), SIOCOUTQ, &bytes) == 0) all += bytes;
    }
    return all;
  };
  while (!over && unread() > 0) sched_yield();
  sockets.clear();
  (*scheduler)->Fail(mslua::WithCause(absl::CancelledError("the script is over"), {-1, mslua::kExitInternal}));
  const mslua::Status outcome = (*scheduler)->Wait();
  if (outcome.ok() && (!(*scheduler)->built() || left.size() < kWorkers)) std::abort();
  if (!outcome.ok() && mslua::CauseOf(outcome).exit_code == 0) std::abort();
  return 0;
}
