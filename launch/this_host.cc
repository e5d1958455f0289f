#include "launch/this_host.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/base/hash.h"

extern char** environ;

namespace mslua {
namespace {

std::string LinkTarget(const char* path) {
  char target[4096];
  const ssize_t n = readlink(path, target, sizeof target);
  return n > 0 ? std::string(target, n) : "";
}

// Of a rank the launcher has both its outputs and its connection to the scheduler; the rest is the launcher's own.
constexpr int64_t kFilesOfRank = 3, kFilesOfLauncher = 16;
// Libraries, the files of a run, and connections to a few others.
constexpr int64_t kFilesOfProcess = 32;
// A rank computes on one thread at least, and hears of the job's end on another.
constexpr int64_t kTasksOfRank = 2;
// MiB that the smallest recipe's rank shares with no other: 5 of its own, and what the kernel keeps of it.
constexpr int64_t kMemoryOfRank = 6;

// MiB; the largest number where the kernel does not say it.
int64_t AvailableMemory() {
  std::ifstream file("/proc/meminfo");
  std::string name, unit;
  for (int64_t kib = 0; file >> name >> kib && std::getline(file, unit);) {
    if (name == "MemAvailable:") return kib / 1024;
  }
  return std::numeric_limits<int64_t>::max();
}

}  // namespace

std::string HostName() {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  return *name == 0 ? "localhost" : name;
}

std::string HostKey() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  const std::string all =
      absl::StrCat(boot, " ", LinkTarget("/proc/self/ns/net"), " ", LinkTarget("/proc/self/ns/mnt"), " ", geteuid());
  return absl::StrCat(HostName(), ":", absl::Hex(Crc32c(all.data(), all.size()), absl::kZeroPad8));
}

int HostCores() { return static_cast<int>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN))); }

// How often a waiting thread of libgomp looks before it gives up its core: about 0.2 ms. Its own number, 300000, is
// milliseconds: beside other busy processes two threads then took ten times as long as one. 1000 is too few for steps
// of small operators.
constexpr char kSpinCount[] = "5000";

Environment ThreadVariables(const Environment& environment, int ranks, int cores) {
  Environment set;
  int threads = std::max(1, cores / std::max(1, ranks));
  const auto given = environment.find("OMP_NUM_THREADS");
  if (given == environment.end() || given->second.empty()) {
    if (ranks > 1) set["OMP_NUM_THREADS"] = absl::StrCat(threads);
  } else if (!absl::SimpleAtoi(given->second, &threads)) {
    threads = cores;  // a list, for nested regions
  }
  if (environment.count("OMP_WAIT_POLICY") > 0) return set;
  if (ranks * threads > cores)
    set["OMP_WAIT_POLICY"] = "passive";
  else if (environment.count("GOMP_SPINCOUNT") == 0)
    set["GOMP_SPINCOUNT"] = kSpinCount;
  return set;
}

HostLimits LimitsHere() {
  HostLimits limits;
  rlimit of;
  if (getrlimit(RLIMIT_NOFILE, &of) == 0 && of.rlim_cur != RLIM_INFINITY)
    limits.open_files = static_cast<int64_t>(of.rlim_cur);
  // The kernel does not limit root's number of tasks, except by its own limit.
  if (geteuid() != 0 && getrlimit(RLIMIT_NPROC, &of) == 0 && of.rlim_cur != RLIM_INFINITY)
    limits.tasks = static_cast<int64_t>(of.rlim_cur);
  for (const char* file : {"/proc/sys/kernel/pid_max", "/proc/sys/kernel/threads-max"}) {
    int64_t most = 0;
    if (!(std::ifstream(file) >> most) || most >= limits.tasks) continue;
    limits.tasks = most;
    limits.tasks_from = file;
  }
  limits.memory = AvailableMemory();
  return limits;
}

Status CheckRanks(int64_t ranks, const HostLimits& limits) {
  const auto check = [ranks](absl::string_view what, int64_t each, int64_t own, int64_t limit, absl::string_view from) {
    if (ranks <= (limit - own) / each) return absl::OkStatus();
    return absl::ResourceExhaustedError(
        absl::StrCat("-n ", ranks, ": each rank takes ", each, " ", what, ", and the limit is ", limit, " (", from,
                     "): start at most ", std::max<int64_t>(0, limit - own) / each, " ranks here, or raise the limit"));
  };
  RETURN_IF_ERROR(check("open files of the launcher", kFilesOfRank, kFilesOfLauncher, limits.open_files, "ulimit -n"));
  RETURN_IF_ERROR(check("processes and threads", kTasksOfRank, 0, limits.tasks, limits.tasks_from));
  if (ranks <= limits.memory / kMemoryOfRank) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      "-n ", ranks, ": a rank of the smallest recipe takes ", kMemoryOfRank, " MiB of memory, and ", limits.memory,
      " MiB are free: start at most ", limits.memory / kMemoryOfRank, " ranks here, or use more hosts"));
}

Status CheckOpenFiles(const HostLimits& limits) {
  if (limits.open_files >= kFilesOfProcess) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("a process may have ", limits.open_files,
                                                   " open files (ulimit -n), and mslua needs ", kFilesOfProcess,
                                                   ": raise the limit"));
}

std::string ReadProcFile(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return "";
  std::string text;
  char bytes[4096];
  ssize_t n = 0;
  while ((n = read(file, bytes, sizeof bytes)) > 0) text.append(bytes, static_cast<size_t>(n));
  close(file);
  return n < 0 ? "" : text;
}

std::string ProgramFile() { return LinkTarget("/proc/self/exe"); }

Environment OwnEnvironment() {
  Environment all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const size_t equals = text.find('=');
    if (equals != std::string::npos) all[text.substr(0, equals)] = text.substr(equals + 1);
  }
  return all;
}

}  // namespace mslua
