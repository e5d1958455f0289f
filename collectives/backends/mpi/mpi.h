// Backend mpi: Open MPI, for ranks that mpirun started. libmpi is opened at run time, by MakeMpiWorld alone.
//
// Calls are MPI's non-blocking ones, polled with a deadline. Before each collective the ranks compare what they are
// about to call. Reductions are repeatable on the same world; their order is MPI's. 16-bit floats travel and are
// combined as f32 and rounded once. MPI_MAX and MPI_MIN decide what a NaN gives.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "collectives/communicator.h"

namespace mslua {

// True in a rank that mpirun started.
bool StartedByMpirun();

struct MpiOptions {
  // Ranks of one host use shared memory alone and listen nowhere. Between hosts, TCP uses this interface or subnet;
  // empty: Open MPI chooses.
  std::string interface;
  // How long MPI_Init and MPI_Finalize may wait for the other ranks; other functions may take as long as the call that
  // they are part of (Call::Within).
  absl::Duration timeout = absl::Minutes(10);
  // Called once, on another thread, when the main thread does not come back from a function of Open MPI's in time.
  // Nothing can interrupt it, so this is to end the process. Empty: nobody watches.
  std::function<void(const Status&)> stuck;
};

// The world, once a process: MPI_Init_thread now, MPI_Finalize by Close or when the last communicator dies, unless a
// call has failed (then mpirun ends the job when this process does). NotFound: no libmpi. FailedPrecondition: not under
// mpirun.
StatusOr<std::unique_ptr<Communicator>> MakeMpiWorld(const MpiOptions& options = MpiOptions());

}  // namespace mslua
