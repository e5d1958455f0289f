// Times the collectives of the native backend: spawns the ranks, prints one JSON line for each operation and size.
//   ranks --ranks N [--seconds S] [--op NAME] [--tcp] [--tls FILE]
// Conventions of nccl-tests: "bytes" is the larger of the two buffers of a rank. "kind" is "arena" for buffers of
// AllocateShared and "private" for others; "tcp" where each rank is a host of its own, "tls" where their connections
// are encrypted.
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "collectives/backends/native/native.h"
#include "core/base/clock.h"
#include "gflags/gflags.h"
#include "rendezvous/local_meeting.h"
#include "rendezvous/socket.h"
#include "rendezvous/stale_folders.h"
#include "rendezvous/tls/tls.h"

DEFINE_int32(ranks, 2, "number of ranks, from 1 to 64");
DEFINE_double(seconds, 0.2, "seconds for each case");
DEFINE_string(op, "", "time this operation only");
DEFINE_bool(tcp, false, "make each rank a host of its own, reached over TCP");
DEFINE_string(tls, "", "TLS configuration: make each rank a host of its own, reached over TLS");
DEFINE_validator(ranks, [](const char*, gflags::int32 n) { return n >= 1 && n <= 64; });

extern char** environ;

namespace mslua {
namespace {

constexpr int64_t kSizes[] = {4, 64, 1 << 10, 1 << 14, 1 << 18, 1 << 20, 1 << 22, 1 << 24, 1 << 26};
constexpr int64_t kLargest = 1 << 26;

struct Operation {
  const char* name;
  bool blocks;  // one of its buffers is n times the other
  Call (*make)(const float* in, float* out, int64_t count, int n);
};
const Operation kOperations[] = {
    {"allreduce", false,
     [](const float*, float* out, int64_t count, int) {
       return Call::AllReduce(ReduceOp::kSum, DType::kF32, out, out, count);
     }},
    {"allgather", true,
     [](const float* in, float* out, int64_t count, int n) {
       return Call::AllGather(DType::kF32, in, out, count / n);
     }},
    {"reduce_scatter", true,
     [](const float* in, float* out, int64_t count, int n) {
       return Call::ReduceScatter(ReduceOp::kSum, DType::kF32, in, out, count / n);
     }},
    {"alltoall", true,
     [](const float* in, float* out, int64_t count, int n) { return Call::AllToAll(DType::kF32, in, out, count / n); }},
    {"broadcast", false,
     [](const float*, float* out, int64_t count, int) { return Call::Broadcast(DType::kF32, out, count, 0); }},
};

void Check(const Status& status) {
  if (status.ok()) return;
  fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  exit(1);
}

double Seconds(Communicator& comm, const Call& call, int64_t iterations) {
  Check(comm.Run(Call::Barrier()));
  const MonotonicTime begin = MonotonicNow();
  for (int64_t i = 0; i < iterations; ++i) Check(comm.Run(call));
  return absl::ToDoubleSeconds(MonotonicNow() - begin) / iterations;
}

// Ranks of one host, or, from `first_port` on, each on a host of its own.
StatusOr<std::unique_ptr<Communicator>> Meet(int rank, int n, const std::string& folder, int first_port) {
  NativeOptions options;
  options.rank = rank;
  options.size = n;
  options.folder = folder;
  if (first_port == 0) return MakeNativeWorld(options);
  options.job = absl::StrCat("bench", first_port);
  options.secret = "a benchmark has nothing to hide";
  if (!FLAGS_tls.empty()) {
    ASSIGN_OR_RETURN(options.tls, Tls::Load({FLAGS_tls, "", "", {}}));
  }
  for (int r = 0; r < n; ++r)
    options.peers.push_back({absl::StrCat("host", r), {"127.0.0.1", static_cast<uint16_t>(first_port + r)}});
  ASSIGN_OR_RETURN(const Fd listener, ListenTcp(options.peers[rank].endpoint));
  return MakeNativeWorld(options, listener);
}

void RunRank(int rank, int n, const std::string& folder, double seconds, const std::string& only, int first_port) {
  auto made = Meet(rank, n, folder, first_port);
  Check(made.status());
  Communicator& comm = **made;
  auto arena = comm.AllocateShared(2 * kLargest, "bench");
  Check(arena.status());
  float* privates = static_cast<float*>(aligned_alloc(1 << 21, 2 * kLargest));
  memset(privates, 0, 2 * kLargest);
  for (const Operation& operation : kOperations) {
    if (!only.empty() && only != operation.name) continue;
    for (const char* kind : {"arena", first_port == 0 ? "private" : FLAGS_tls.empty() ? "tcp" : "tls"}) {
      if (first_port != 0 && kind[0] == 'a') continue;
      float* in = kind[0] == 'a' ? static_cast<float*>(*arena) : privates;
      float* out = in + kLargest / 4;
      for (int64_t size : kSizes) {
        const int64_t count = std::max<int64_t>(size / 4, operation.blocks ? n : 1);
        const Call call = operation.make(in, out, count, n);
        Seconds(comm, call, 3);
        double one = Seconds(comm, call, 3);
        int64_t iterations = std::clamp<int64_t>(static_cast<int64_t>(seconds / 9 / std::max(one, 1e-9)), 3, 20000);
        Check(comm.Run(Call::Broadcast(DType::kI64, &iterations, 1, 0)));
        double parts[9];
        for (double& part : parts) part = Seconds(comm, call, iterations);
        std::sort(parts, parts + 9);
        if (rank == 0) {
          printf(
              "{\"bench\": \"coll\", \"library\": \"mslua\", \"kind\": \"%s\", \"op\": \"%s\", \"ranks\": %d, "
              "\"bytes\": %lld, \"us\": %.3f}\n",
              kind, operation.name, n, static_cast<long long>(count * 4), parts[0] * 1e6);
          fflush(stdout);
        }
      }
    }
  }
  Check(comm.Run(Call::Barrier()));
  free(privates);
}

int Main(int argc, char** argv) {
  gflags::ParseCommandLineFlags(&argc, &argv, false);
  std::vector<std::string> known;
  for (const Operation& o : kOperations) known.emplace_back(o.name);
  if (!FLAGS_op.empty() && std::count(known.begin(), known.end(), FLAGS_op) == 0) {
    fprintf(stderr, "ranks: --op: expected one of %s, got '%s'\n", absl::StrJoin(known, ", ").c_str(),
            FLAGS_op.c_str());
    return 2;
  }
  const int n = FLAGS_ranks;
  if (const char* rank = getenv("BENCH_RANK")) {
    RunRank(atoi(rank), n, getenv("BENCH_FOLDER"), FLAGS_seconds, FLAGS_op, atoi(getenv("BENCH_PORT")));
    return 0;
  }
  const auto name = NewMeetingName();
  Check(name.status());
  const auto folder = MakeHeldFolder(*name);
  Check(folder.status());
  setenv("BENCH_FOLDER", folder->c_str(), 1);
  // Below the ports that the system gives to those who connect.
  setenv("BENCH_PORT", absl::StrCat(FLAGS_tcp || !FLAGS_tls.empty() ? 20000 + getpid() % 12000 : 0).c_str(), 1);
  std::vector<pid_t> children;
  for (int r = 0; r < n; ++r) {
    setenv("BENCH_RANK", absl::StrCat(r).c_str(), 1);
    pid_t pid;
    if (posix_spawn(&pid, "/proc/self/exe", nullptr, nullptr, argv, environ) != 0) return 1;
    children.push_back(pid);
  }
  int result = 0;
  for (pid_t pid : children) {
    int status = 0;
    waitpid(pid, &status, 0);
    if (status != 0) result = 1;
  }
  rmdir(folder->c_str());
  return result;
}

}  // namespace
}  // namespace mslua

int main(int argc, char** argv) { return mslua::Main(argc, argv); }
