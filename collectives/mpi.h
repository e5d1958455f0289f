// Backend mpi: Open MPI, for ranks that mpirun started. libmpi is opened at run time, by MakeMpiWorld alone.
//
// Calls are MPI's non-blocking ones, polled with a deadline. Before each collective the ranks compare what they are
// about to call. Reductions are repeatable on the same world; their order is MPI's. 16-bit floats travel and are
// combined as f32 and rounded once. MPI_MAX and MPI_MIN decide what a NaN gives.
#pragma once

#include <memory>
#include <string>

#include "absl/time/time.h"
#include "collectives/communicator.h"

namespace mslua {

// True in a rank that mpirun started.
bool StartedByMpirun();

// The world, once a process: MPI_Init_thread now, MPI_Finalize when the last communicator dies, unless a call has
// failed (then mpirun ends the job when this process does). Ranks of one host use shared memory alone and listen nowhere.
// `interface`: the name or subnet for TCP between hosts; empty: Open MPI chooses. NotFound: no libmpi.
// FailedPrecondition: not under mpirun.
StatusOr<std::unique_ptr<Communicator>> MakeMpiWorld(const std::string& interface = "");

}  // namespace mslua
