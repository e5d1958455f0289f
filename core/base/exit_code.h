// What a process of mslua ends with; scripts and schedulers act on it.
#pragma once

#include <utility>

#include "core/base/status.h"

namespace mslua {

enum ExitCode {
  kExitOk = 0,           // trained; did what was asked
  kExitUsage = 2,        // command line or recipe
  kExitData = 3,         // data missing or bad
  kExitEnvironment = 4,  // rendezvous, machine, packages
  kExitRankCrashed = 5,
  kExitHang = 6,           // hang, or mismatched collectives
  kExitDiverged = 7,       // NaN or infinite loss
  kExitExpect = 8,         // `expect` of the recipe not met
  kExitStorage = 9,        // checkpoint or storage
  kExitSecurity = 10,      // authentication or TLS
  kExitInternal = 70,      // a bug of mslua
  kExitCheckpointed = 75,  // stopped with a checkpoint saved: start again to continue
  kExitInterrupted = 130,
};

// The error with the exit code that the process should end with because of it. OK stays OK, and an error that has an
// exit code keeps it.
Status WithExitCode(Status status, ExitCode code);
template <class T>
StatusOr<T> WithExitCode(StatusOr<T> value, ExitCode code) {
  if (value.ok()) return value;
  return WithExitCode(value.status(), code);
}
// What WithExitCode has said; kExitOk where it has said nothing.
ExitCode ExitCodeIn(const Status& status);

}  // namespace mslua
