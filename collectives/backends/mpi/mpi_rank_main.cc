// One rank of mpi_test under mpirun: runs the part of the conformance suite that it is told to.
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include "absl/time/clock.h"
#include "collectives/backends/mpi/mpi.h"
#include "collectives/conformance.h"

int main(int argc, char** argv) {
  using namespace mslua;  // NOLINT: a main file
  testing::InitGoogleTest(&argc, argv);
  const std::string part = argc > 1 ? argv[1] : "";
  MpiOptions made;
  if (part == "stuck") {
    // Rank 1 does not come to MPI_Init while rank 0 waits for it there.
    if (std::string(getenv("OMPI_COMM_WORLD_RANK")) == "1") absl::SleepFor(absl::Minutes(10));
    made.timeout = absl::Seconds(1);
    made.stuck = [](const Status& why) {
      fprintf(stderr, "%s\n", why.ToString().c_str());
      _exit(6);
    };
  }
  auto comm = MakeMpiWorld(made);
  if (!comm.ok()) {
    fprintf(stderr, "%s\n", comm.status().ToString().c_str());
    return 3;
  }
  ConformanceOptions options;
  options.rank_order = false;
  bool broken = true;
  if (part == "collectives") {
    CheckCollectives(**comm, options);
    CheckGroups(**comm, options);
    CheckAsynchronous(**comm);
    CheckMessagesBesideCollectives(**comm);
    CheckMessages(**comm, options);
    CheckNaN(**comm);
    CheckRepeatable(**comm, options);
    CheckShared(**comm, options);
    CheckRefusals(**comm);
    broken = false;
  } else if (part == "mismatch") {
    CheckMismatch(**comm);
  } else if (part == "message_mismatch") {
    CheckMessageMismatch(**comm);
  } else if (part == "deadline") {
    CheckDeadlineFor(**comm, absl::Milliseconds(700));  // mpirun ends it when the others have left
  } else if (part == "abort") {
    CheckAbort(**comm);
  } else {
    return 2;
  }
  const bool failed = testing::Test::HasFailure();
  if (!broken) {
    comm->reset();
    return failed ? 1 : 0;
  }
  // mpirun ends the job with the first rank that leaves without MPI_Finalize: let all of them see and say.
  printf("checked: %s\n", failed ? "failed" : "as expected");
  fflush(stdout);
  absl::SleepFor(absl::Seconds(1));
  _exit(failed ? 1 : 0);
}
