#include "launch/stopped_ranks.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/base/exit_code.h"
#include "core/base/input_file.h"
#include "launch/this_host.h"
#include "rendezvous/cause.h"

namespace mslua {
namespace {

constexpr absl::Duration kLook = absl::Milliseconds(500);
constexpr int64_t kRankTableLimit = 16 << 20;  // bytes

// The variables that are equal in all ranks of a job, by how it was started, and differ from job to job.
std::vector<std::string> JobVariables(Identity::Source source) {
  switch (source) {
    case Identity::Source::kLauncher:
      return {kLauncherMeeting, kLauncherPid};
    case Identity::Source::kCluster:
      return {"MS_SCHED_HOST", "MS_SCHED_PORT", "MS_WORKER_NUM"};
    case Identity::Source::kRankTable:
      return {"RANK_TABLE_FILE", "MS_SCHED_PORT"};
    case Identity::Source::kMpi:
      return {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "OMPI_COMM_WORLD_SIZE"};
    case Identity::Source::kSlurm:
      return {"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_NTASKS", "MASTER_ADDR", "MASTER_PORT"};
    case Identity::Source::kTorchrun:
      return {"MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE"};
    case Identity::Source::kSingle:
      return {};
  }
  return {};
}

std::string Value(const Environment& environment, const std::string& name) {
  const auto it = environment.find(name);
  return it == environment.end() ? "" : it->second;
}

bool SameJob(Identity::Source source, const Environment& a, const Environment& b) {
  const std::vector<std::string> names = JobVariables(source);
  return std::all_of(names.begin(), names.end(),
                     [&](const std::string& name) { return Value(a, name) == Value(b, name); });
}

std::string Link(const std::string& path) {
  char target[4096];
  const ssize_t n = readlink(path.c_str(), target, sizeof target);
  return n > 0 ? std::string(target, n) : "";
}

// "812 (name) T 1 ...": the name may hold anything.
bool IsStopped(const std::string& stat) {
  const size_t name_end = stat.rfind(')');
  return name_end != std::string::npos && name_end + 2 < stat.size() && stat[name_end + 2] == 'T';
}

}  // namespace

std::vector<StoppedRank> FindStoppedRanks(const Environment& environment, const std::string& proc) {
  std::vector<StoppedRank> found;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir(proc.c_str()), closedir);
  const std::string program = Link(proc + "/self/exe");
  const auto read_table = [](const std::string& file) { return ReadFile(file, kRankTableLimit); };
  if (folder == nullptr || program.empty()) return found;
  while (const dirent* entry = readdir(folder.get())) {
    const std::string path = absl::StrCat(proc, "/", entry->d_name);
    struct stat owner;
    pid_t pid = 0;
    if (!absl::SimpleAtoi(entry->d_name, &pid) || pid == getpid()) continue;
    if (stat(path.c_str(), &owner) != 0 || owner.st_uid != geteuid()) continue;
    if (!IsStopped(ReadProcFile(path + "/stat")) || Link(path + "/exe") != program) continue;
    Environment theirs;
    for (const absl::string_view variable : absl::StrSplit(ReadProcFile(path + "/environ"), '\0')) {
      const std::pair<std::string, std::string> parts = absl::StrSplit(variable, absl::MaxSplits('=', 1));
      theirs.insert(parts);
    }
    const auto identity = WhoAmI(theirs, read_table), mine = WhoAmI(environment, read_table);
    if (!identity.ok() || !mine.ok() || identity->scheduler || identity->source == Identity::Source::kSingle) continue;
    if (identity->source != mine->source || !SameJob(mine->source, environment, theirs)) continue;
    StoppedRank rank;
    rank.pid = pid;
    rank.rank = identity->rank;
    const std::string who =
        identity->rank >= 0
            ? absl::StrCat("rank ", identity->rank, "/", identity->size)
            : absl::StrCat("worker ", identity->node_id.empty() ? "" : identity->node_id + " ", "of ", identity->size);
    rank.name = absl::StrCat(who, " (pid ", pid, ", host ", HostName(), ")");
    found.push_back(std::move(rank));
  }
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.rank < b.rank; });
  return found;
}

StoppedRankWatch::StoppedRankWatch(Environment environment, absl::Duration limit,
                                   std::function<void(const Status&)> found)
    : environment_(std::move(environment)),
      limit_(std::max(limit, 2 * kLook)),
      found_(std::move(found)),
      thread_([this] { Run(); }) {}

StoppedRankWatch::~StoppedRankWatch() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ended_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void StoppedRankWatch::Run() {
  // Looks in a row that saw the process stopped. Counted, since this process may have been stopped and continued too.
  std::map<pid_t, int> seen;
  std::unique_lock<std::mutex> lock(mutex_);
  while (!changed_.wait_for(lock, absl::ToChronoNanoseconds(kLook), [this] { return ended_; })) {
    lock.unlock();
    std::map<pid_t, int> now;
    for (const StoppedRank& rank : FindStoppedRanks(environment_)) {
      now[rank.pid] = seen[rank.pid] + 1;
      if (now[rank.pid] * kLook < limit_) continue;
      return found_(
          WithCause(absl::UnavailableError(absl::StrCat(rank.name, " was stopped by a signal and did not continue for ",
                                                        absl::FormatDuration(limit_))),
                    {rank.rank, kExitHang}));
    }
    seen = std::move(now);
    lock.lock();
  }
}

}  // namespace mslua
