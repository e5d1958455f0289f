// SIGINT and SIGTERM while a network is trained.
#pragma once

#include "core/train/trainer.h"

namespace mslua {

// Stops `trainer` at the next boundary on SIGINT or SIGTERM; a second signal ends the process. `by_mpirun`: its ranks.
// One at a time.
class SignalScope {
 public:
  SignalScope(Trainer* trainer, bool by_mpirun);
  ~SignalScope();
  SignalScope(const SignalScope&) = delete;
  SignalScope& operator=(const SignalScope&) = delete;

  // Another thread asks for what the signal does. A signal that this process gets as well is still its first one.
  static void Stop(int signal);
  // The signal that came while the latest scope lived; 0: none.
  static int Signal();

 private:
  void (*old_int_)(int);
  void (*old_term_)(int);
};

}  // namespace mslua
