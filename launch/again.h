// Runs a command that starts the ranks of a job, such as mpirun, until the job is done or cannot be helped.
#pragma once

#include <string>
#include <vector>

#include "core/base/status.h"

namespace mslua {

struct AgainOptions {
  std::vector<std::string> command;  // its program, looked for in PATH, and arguments
  int64_t max_restarts = -1;         // in all; -1: as long as there is progress
};

// The command's environment names a job (MSLUA_RECOVERY), whose ranks on this host resume from the images that they
// have kept. It is run again when it ends by a signal, or with an exit code that may pass (RestartPolicy); mpirun's and
// srun's for ranks that were killed are such. A command that does not end though all its ranks on this host have, and
// not all of them in order, is ended (kEndWithoutRanks). Signals are passed on, and end it. Gives the command's exit
// code.
// NotFound: there is no such program.
StatusOr<int> RunAgain(const AgainOptions& options);

}  // namespace mslua
