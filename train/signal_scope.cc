#include "train/signal_scope.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <mutex>
#include <utility>

#include "launch/job.h"

namespace mslua {
namespace {

using StopFunction = std::function<void()>;

std::mutex scope_mutex;  // of scoped_stop
const StopFunction* scoped_stop = nullptr;
// What a signal calls: handlers reach nothing but statics.
std::atomic<const StopFunction*> interrupted_stop{nullptr};
std::atomic<int> interrupting_signal{0};
std::atomic<bool> console_may_be_deaf{false}, acknowledges{false};
std::atomic<bool> asks_all{false};     // the signal that came is on its way to all ranks (SignalScope::Stop)
std::atomic<bool> still_comes{false};  // this rank stops for a signal that it may get later

// By write alone, which a signal handler may call.
void Acknowledge() {
  // A terminal has just shown "^C", and a status line may stand there.
  constexpr char kText[] = "mslua: stopping after this step; once more to stop at once\n";
  constexpr char kOnTerminal[] = "\r\033[Kmslua: stopping after this step; once more to stop at once\n";
  const int saved = errno;
  const bool terminal = isatty(STDERR_FILENO) != 0;
  const char* const text = terminal ? kOnTerminal : kText;
  const size_t size = terminal ? sizeof kOnTerminal - 1 : sizeof kText - 1;
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text, size);
  errno = saved;
}

void OnSignal(int signal) {
  // A terminal that closes and its shell send one each.
  if (signal == SIGHUP && interrupting_signal != 0) return;
  interrupting_signal = signal;
  HandOnStop(signal);
  // mpirun reads no more once it stops its ranks: who waits for it to read never comes to the end of the step.
  if (console_may_be_deaf) {
    for (const int out : {STDOUT_FILENO, STDERR_FILENO}) fcntl(out, F_SETFL, fcntl(out, F_GETFL) | O_NONBLOCK);
  }
  still_comes = false;
  if (const StopFunction* const stop = interrupted_stop.exchange(nullptr)) {
    (*stop)();
    if (acknowledges) Acknowledge();
  } else {
    std::signal(signal, SIG_DFL), std::raise(signal);
  }
}

void OnLateSignal(int signal) {
  if (!still_comes.exchange(false)) std::signal(signal, SIG_DFL), std::raise(signal);
}

std::atomic<int> early_signal{0};

void OnEarlySignal(int signal) {
  int none = 0;
  HandOnStop(signal);
  if (!early_signal.compare_exchange_strong(none, signal)) std::signal(signal, SIG_DFL), std::raise(signal);
}

}  // namespace

void SignalScope::Remember() {
  if (const int asked = TakeHandedStop(); asked != 0) early_signal = asked;
  for (const int signal : kSignals) {
    if (std::signal(signal, OnEarlySignal) == SIG_IGN) std::signal(signal, SIG_IGN);
  }
}

SignalScope::SignalScope(std::function<void()> stop, Console console) : stop_(std::move(stop)) {
  const std::lock_guard<std::mutex> lock(scope_mutex);
  scoped_stop = &stop_;
  interrupted_stop = &stop_;
  interrupting_signal = 0;
  HandOnStop(0);
  asks_all = false;
  still_comes = false;
  console_may_be_deaf = console == Console::kMpirun;
  acknowledges = console == Console::kOwn;
  for (size_t i = 0; i < kSignals.size(); ++i) {
    old_[i] = std::signal(kSignals[i], OnSignal);
    // nohup's processes outlive their terminal.
    if (kSignals[i] == SIGHUP && old_[i] == SIG_IGN) std::signal(SIGHUP, SIG_IGN);
  }
  if (const int early = early_signal.exchange(0)) {
    interrupting_signal = early;
    HandOnStop(early);
    interrupted_stop = nullptr;
    stop_();
  }
}

SignalScope::~SignalScope() {
  const std::lock_guard<std::mutex> lock(scope_mutex);
  scoped_stop = nullptr;
  interrupted_stop = nullptr;
  for (size_t i = 0; i < kSignals.size(); ++i)
    std::signal(kSignals[i], still_comes && old_[i] == SIG_DFL ? OnLateSignal : old_[i]);
}

void SignalScope::Stop(int signal) {
  const std::lock_guard<std::mutex> lock(scope_mutex);
  if (scoped_stop == nullptr) {
    if (!still_comes.exchange(false)) kill(getpid(), signal);
    return;
  }
  interrupting_signal = signal;
  asks_all = true;
  still_comes = false;
  (*scoped_stop)();
}

int SignalScope::Signal() { return interrupting_signal; }

namespace {

constexpr int kAsksAll = SignalScope::kRequests / 2;  // in a request; signals are less

}  // namespace

int SignalScope::Request() {
  const int signal = interrupting_signal;
  return signal == 0 ? 0 : signal + (asks_all ? kAsksAll : 0);
}

void SignalScope::Heed(int request) {
  const std::lock_guard<std::mutex> lock(scope_mutex);
  if (request == 0 || scoped_stop == nullptr || interrupting_signal != 0) return;
  still_comes = true;
  // Who is asked later exits as those who have been asked.
  if (request >= kAsksAll) interrupting_signal = request - kAsksAll;
}

}  // namespace mslua
