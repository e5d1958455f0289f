#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "collectives/backends/mpi/mpi.h"

namespace mslua {
namespace {

struct Result {
  int code;
  std::string output;
};

Result Mpirun(int ranks, const std::string& part) {
  const char* sources = getenv("TEST_SRCDIR");
  const std::string binary = sources != nullptr ? absl::StrCat(sources, "/mslua/collectives/backends/mpi/mpi_rank")
                                                : std::string(getenv("MPI_RANK_BINARY"));
  const std::string command =
      absl::StrCat("timeout -k 1 60 mpirun --allow-run-as-root --oversubscribe --mca btl self,vader -n ", ranks, " ",
                   binary, " ", part, " 2>&1 < /dev/null");
  Result result;
  FILE* pipe = popen(command.c_str(), "r");
  char buffer[4096];
  for (size_t n; (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;) result.output.append(buffer, n);
  const int status = pclose(pipe);
  result.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return result;
}

int CountOf(const std::string& text, const std::string& what) {
  int n = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
  return n;
}

class Mpi : public ::testing::TestWithParam<int> {};

TEST_P(Mpi, Conformance) {
  const Result result = Mpirun(GetParam(), "collectives");
  EXPECT_EQ(result.code, 0) << result.output;
}
INSTANTIATE_TEST_SUITE_P(Ranks, Mpi, ::testing::Values(1, 2, 3, 4));

// A rank that leaves without MPI_Finalize makes mpirun end with an error: what counts is what the ranks said.
TEST(MpiFailures, AreNamedOnAllRanks) {
  for (const char* part : {"mismatch", "message_mismatch", "deadline", "abort"}) {
    const Result result = Mpirun(3, part);
    EXPECT_EQ(CountOf(result.output, "checked: as expected"), 3) << part << "\n" << result.output;
    EXPECT_EQ(CountOf(result.output, "checked: failed"), 0) << part << "\n" << result.output;
  }
}

// The main thread is inside MPI, where no deadline of ours is looked at.
TEST(MpiFailures, WaitingInsideMpiEnds) {
  const Result result = Mpirun(2, "stuck");
  EXPECT_NE(result.code, 0);
  EXPECT_NE(result.code, 124) << "timed out: " << result.output;
  EXPECT_EQ(CountOf(result.output, "MPI_Init_thread of Open MPI has not returned for 1s"), 1) << result.output;
}

TEST(MpiWorld, NeedsMpirun) {
  EXPECT_FALSE(StartedByMpirun());
  EXPECT_EQ(MakeMpiWorld().status().code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace mslua
