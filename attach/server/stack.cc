#include "attach/server/stack.h"

#include <errno.h>
#include <signal.h>

#include <atomic>
#include <memory>

#include "absl/debugging/symbolize.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "core/base/clock.h"
#include "core/base/unwind.h"

namespace mslua::endpoint {
namespace {

constexpr int kFrames = 64;

// Handlers reach nothing but statics.
std::atomic<void (*)(void*, const void*)> asked{nullptr};
std::atomic<void*> asked_argument{nullptr};
std::atomic<bool> answered{false};

int Signal() { return SIGRTMIN + 5; }

void OnSignal(int, siginfo_t*, void* context) {
  const int error = errno;
  if (void (*f)(void*, const void*) = asked.exchange(nullptr)) {
    f(asked_argument.load(), context);
    answered.store(true);
  }
  errno = error;
}

}  // namespace

bool RunInSignalHandler(pthread_t thread, void (*f)(void*, const void*), void* argument, absl::Duration limit) {
  static const bool installed = [] {
    struct sigaction action = {};
    action.sa_sigaction = OnSignal;
    action.sa_flags = SA_RESTART | SA_SIGINFO;
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
  const auto stack = std::make_unique<StackCopy>();
  const auto copy = [](void* to, const void* context) { static_cast<StackCopy*>(to)->Take(context); };
  if (!RunInSignalHandler(thread, copy, stack.get(), limit)) return "";
  uintptr_t frames[kFrames];
  const int count = Unwind(*stack, frames, kFrames);
  std::string text;
  for (int i = 0; i < count; ++i) {
    char name[512];
    void* const at = reinterpret_cast<void*>(frames[i]);
    // An address that a call returns to is behind the call; the first one is where the thread was.
    const bool known = absl::Symbolize(static_cast<char*>(at) - (i > 0 ? 1 : 0), name, sizeof name);
    absl::StrAppendFormat(&text, "  %s\n", known ? name : absl::StrFormat("%p", at));
  }
  return text;
}

}  // namespace mslua::endpoint
