// Starts the ranks of a job on this machine and watches them: what `mslua train R -n N` does.
#pragma once

#include <string>
#include <vector>

#include "absl/time/time.h"

namespace mslua {

struct LaunchOptions {
  int ranks = 2;
  std::vector<std::string> command;                 // of every rank: the program's file, then its arguments
  absl::Duration stopped_limit = absl::Seconds(1);  // how long a rank may be stopped (SIGSTOP) before that is a failure
  absl::Duration heartbeat_limit;                   // how long it may give no sign of life; at least 30 s
  // Rank 0 has this process's terminal: its input, its output, and Ctrl-C.
  bool interactive = false;
  absl::Duration end_limit = absl::Milliseconds(1500);  // for the ranks to end by themselves after a failure
  // Not empty: the job starts again when a rank has crashed, was stopped or does not answer; this is what the ranks see
  // as MSLUA_RECOVERY (rendezvous/identity.h).
  std::string recovery;
  int64_t max_restarts = -1;  // in all; -1: as long as there is progress
  int64_t restarts = 0;       // that there were: what the ranks see as MSLUA_RESTARTS
  std::string restart_cause;  // of the last one: what the ranks see as MSLUA_RESTART_CAUSE
};

// Called by the main thread, before any other thread runs. Rank 0's output goes through as it is, the others' by lines
// behind "[rank 1] ". Signals are passed on; the second one ends all at once, and so does a rank that ends after the
// first one and before all have met. The first cause of a failure is printed once, last. Gives its exit code, or the
// first rank's that is not 0; after a signal 130, or 75 when it was not SIGINT and all ranks have saved a checkpoint.
// No rank outlives this. A job that starts again and fails three times in the same way without a turn in between ends
// with that failure.
int RunRanks(const LaunchOptions& options);

}  // namespace mslua
