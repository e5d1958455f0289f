#include "train/signal_scope.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <mutex>

namespace mslua {
namespace {

std::mutex scope_mutex;  // of scoped_trainer
Trainer* scoped_trainer = nullptr;
// The trainer that a signal stops: handlers reach nothing but statics.
std::atomic<Trainer*> interrupted_trainer{nullptr};
std::atomic<int> interrupting_signal{0};
std::atomic<bool> console_may_be_deaf{false}, acknowledges{false};

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
  // mpirun reads no more once it stops its ranks: who waits for it to read never comes to the end of the step.
  if (console_may_be_deaf) {
    for (const int out : {STDOUT_FILENO, STDERR_FILENO}) fcntl(out, F_SETFL, fcntl(out, F_GETFL) | O_NONBLOCK);
  }
  if (Trainer* t = interrupted_trainer.exchange(nullptr)) {
    t->RequestStop();
    if (acknowledges) Acknowledge();
  } else {
    std::signal(signal, SIG_DFL), std::raise(signal);
  }
}

std::atomic<int> early_signal{0};

void OnEarlySignal(int signal) {
  int none = 0;
  if (!early_signal.compare_exchange_strong(none, signal)) std::signal(signal, SIG_DFL), std::raise(signal);
}

}  // namespace

void SignalScope::Remember() {
  for (const int signal : kSignals) {
    if (std::signal(signal, OnEarlySignal) == SIG_IGN) std::signal(signal, SIG_IGN);
  }
}

SignalScope::SignalScope(Trainer* trainer, Console console) {
  const std::lock_guard<std::mutex> lock(scope_mutex);
  scoped_trainer = trainer;
  interrupted_trainer = trainer;
  interrupting_signal = 0;
  console_may_be_deaf = console == Console::kMpirun;
  acknowledges = console == Console::kOwn;
  for (size_t i = 0; i < kSignals.size(); ++i) {
    old_[i] = std::signal(kSignals[i], OnSignal);
    // nohup's processes outlive their terminal.
    if (kSignals[i] == SIGHUP && old_[i] == SIG_IGN) std::signal(SIGHUP, SIG_IGN);
  }
  if (const int early = early_signal.exchange(0)) {
    interrupting_signal = early;
    interrupted_trainer = nullptr;
    trainer->RequestStop();
  }
}

SignalScope::~SignalScope() {
  const std::lock_guard<std::mutex> lock(scope_mutex);
  scoped_trainer = nullptr;
  interrupted_trainer = nullptr;
  for (size_t i = 0; i < kSignals.size(); ++i) std::signal(kSignals[i], old_[i]);
}

void SignalScope::Stop(int signal) {
  const std::lock_guard<std::mutex> lock(scope_mutex);
  if (scoped_trainer == nullptr) {
    kill(getpid(), signal);
    return;
  }
  interrupting_signal = signal;
  scoped_trainer->RequestStop();
}

int SignalScope::Signal() { return interrupting_signal; }

}  // namespace mslua
