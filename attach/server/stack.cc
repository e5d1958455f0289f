#include "attach/server/stack.h"

#include <execinfo.h>
#include <signal.h>

#include <atomic>
#include <mutex>

#include "absl/debugging/symbolize.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "core/base/clock.h"

namespace mslua::endpoint {
namespace {

constexpr int kFrames = 64;

// Handlers reach nothing but statics.
std::atomic<void (*)(void*)> asked{nullptr};
std::atomic<void*> asked_argument{nullptr};
std::atomic<bool> answered{false};

int Signal() { return SIGRTMIN + 5; }

void OnSignal(int) {
  const int error = errno;
  if (void (*f)(void*) = asked.exchange(nullptr)) {
    f(asked_argument.load());
    answered.store(true);
  }
  errno = error;
}

struct Frames {
  void* at[kFrames];
  int count = 0;
};

}  // namespace

bool RunInSignalHandler(pthread_t thread, void (*f)(void*), void* argument, absl::Duration limit) {
  static const bool installed = [] {
    struct sigaction action = {};
    action.sa_handler = OnSignal;
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    return sigaction(Signal(), &action, nullptr) == 0;
  }();
  if (!installed) return false;
  answered = false;
  asked_argument = argument;
  asked = f;
  if (pthread_kill(thread, Signal()) != 0) return false;
  const MonotonicTime until = MonotonicNow() + limit;
  while (!answered && MonotonicNow() < until) absl::SleepFor(absl::Milliseconds(1));
  if (answered) return true;
  // The first that takes it back: a handler that has begun is waited for, since `argument` is the caller's.
  if (asked.exchange(nullptr) != nullptr) return false;
  while (!answered) absl::SleepFor(absl::Milliseconds(1));
  return true;
}

std::string NativeStack(pthread_t thread, absl::Duration limit) {
  // The first call loads the unwinder, which a handler must not do.
  static const int loaded = [] {
    void* frame;
    return backtrace(&frame, 1);
  }();
  (void)loaded;
  Frames frames;
  const auto fill = [](void* to) {
    auto* f = static_cast<Frames*>(to);
    f->count = backtrace(f->at, kFrames);
  };
  if (!RunInSignalHandler(thread, fill, &frames, limit)) return "";
  std::string text;
  // The handler and what called it come first.
  for (int i = 3; i < frames.count; ++i) {
    char name[512];
    const bool known = absl::Symbolize(static_cast<char*>(frames.at[i]) - 1, name, sizeof name);
    absl::StrAppendFormat(&text, "  %s\n", known ? name : absl::StrFormat("%p", frames.at[i]));
  }
  return text;
}

}  // namespace mslua::endpoint
