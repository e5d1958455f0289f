// SIGINT, SIGTERM and SIGHUP while a network is trained.
#pragma once

#include <array>
#include <csignal>
#include <functional>

namespace mslua {

// Calls `stop` on SIGINT, SIGTERM or SIGHUP (a terminal that is gone; unless it is ignored), which makes the training
// stop at its next boundary; a second signal ends the process. One at a time.
//
// Of ranks that train together one hears of a signal first, and the others stop with it (Request, Heed). A signal that
// reaches one of those later, when its scope is over, is still its first one, and does not end it.
class SignalScope {
 public:
  enum class Console {
    kOwn,       // the first signal is acknowledged on stderr
    kLauncher,  // the process that started the ranks acknowledges it
    kMpirun,    // which may read no more
  };
  // `stop` is called by a signal handler: it does what such a function may.
  SignalScope(std::function<void()> stop, Console console);
  ~SignalScope();
  SignalScope(const SignalScope&) = delete;
  SignalScope& operator=(const SignalScope&) = delete;

  // From now on a first signal is remembered for the next scope, whose training stops at its first boundary.
  static void Remember();
  // Another thread asks all ranks for what the signal does. A signal that this process gets as well is still its first
  // one.
  static void Stop(int signal);
  // The signal that came while the latest scope lived; 0: none.
  static int Signal();

  // What this rank tells the others of the signal that stops it, less than kRequests; 0: none does.
  static constexpr int kRequests = 256;
  static int Request();
  // The ranks stop for a rank's Request.
  static void Heed(int request);

 private:
  static constexpr std::array<int, 3> kSignals = {SIGINT, SIGTERM, SIGHUP};
  const std::function<void()> stop_;
  std::array<void (*)(int), kSignals.size()> old_;
};

}  // namespace mslua
