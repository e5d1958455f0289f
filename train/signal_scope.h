// SIGINT, SIGTERM and SIGHUP while a network is trained.
#pragma once

#include <array>
#include <csignal>

#include "core/train/trainer.h"

namespace mslua {

// Stops `trainer` at the next boundary on SIGINT, SIGTERM or SIGHUP (a terminal that is gone; unless it is ignored); a
// second signal ends the process. One at a time.
class SignalScope {
 public:
  enum class Console {
    kOwn,       // the first signal is acknowledged on stderr
    kLauncher,  // the process that started the ranks acknowledges it
    kMpirun,    // which may read no more
  };
  SignalScope(Trainer* trainer, Console console);
  ~SignalScope();
  SignalScope(const SignalScope&) = delete;
  SignalScope& operator=(const SignalScope&) = delete;

  // From now on a first signal is remembered for the next scope, whose trainer stops at its first boundary.
  static void Remember();
  // Another thread asks for what the signal does. A signal that this process gets as well is still its first one.
  static void Stop(int signal);
  // The signal that came while the latest scope lived; 0: none.
  static int Signal();

 private:
  static constexpr std::array<int, 3> kSignals = {SIGINT, SIGTERM, SIGHUP};
  std::array<void (*)(int), kSignals.size()> old_;
};

}  // namespace mslua
