#include "launch/again.h"

#include <dirent.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "core/base/authentication.h"
#include "core/base/clock.h"
#include "core/base/exit_code.h"
#include "core/base/printable.h"
#include "core/base/spawn.h"
#include "launch/image_keeper.h"
#include "launch/job.h"
#include "launch/restarts.h"
#include "launch/this_host.h"
#include "rendezvous/cause.h"
#include "rendezvous/identity.h"
#include "rendezvous/restart_policy.h"

namespace mslua {
namespace {

// How long a command may continue when its ranks have gone, and how long it may take to end when it is asked to.
constexpr absl::Duration kEndWithoutRanks = absl::Seconds(30), kEndWhenAsked = absl::Seconds(5);
constexpr absl::Duration kLook = absl::Seconds(1);

void Say(const std::string& line) { std::fputs(absl::StrCat("mslua: ", PrintableMessage(line), "\n").c_str(), stderr); }

sigset_t Handled() {
  sigset_t set = StopSignals();
  sigaddset(&set, SIGCHLD);
  return set;
}

StatusOr<pid_t> Spawn(const std::vector<std::string>& command, const Environment& environment) {
  std::vector<std::string> variables;
  for (const auto& [name, value] : environment) variables.push_back(absl::StrCat(name, "=", value));
  const SpawnAttributes attributes;
  pid_t pid = 0;
  const int error = posix_spawnp(&pid, command[0].c_str(), nullptr, attributes.get(), SpawnTexts(command).data(),
                                 SpawnTexts(variables).data());
  if (error != 0) return absl::NotFoundError(absl::StrCat("cannot start ", command[0], ": ", strerror(error)));
  return pid;
}

std::vector<std::string> WordsOf(const std::string& path) { return absl::StrSplit(ReadProcFile(path), '\0'); }

// The processes that the command has started, and those that they have: all that have its job in their environment, but
// for the keeper of the images.
std::vector<pid_t> ProcessesOf(const std::string& job) {
  std::vector<pid_t> found;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir("/proc"), closedir);
  const std::string variable = absl::StrCat(kRecoveryJob, "=", job);
  for (const dirent* entry = nullptr; folder != nullptr && (entry = readdir(folder.get())) != nullptr;) {
    pid_t pid = 0;
    if (!absl::SimpleAtoi(entry->d_name, &pid) || pid == getpid()) continue;
    const std::string path = absl::StrCat("/proc/", pid);
    const std::vector<std::string> variables = WordsOf(path + "/environ"), words = WordsOf(path + "/cmdline");
    if (std::find(variables.begin(), variables.end(), variable) == variables.end()) continue;
    if (words.size() > 2 && words[1] == "keep" && words[2] == job) continue;
    found.push_back(pid);
  }
  return found;
}

// Ends a command that continues without its ranks, and what it has left.
void EndCommand(pid_t pid, const std::string& job) {
  kill(pid, SIGTERM);
  const MonotonicTime until = MonotonicNow() + kEndWhenAsked;
  while (MonotonicNow() < until && !ProcessesOf(job).empty()) absl::SleepFor(absl::Milliseconds(20));
  for (const pid_t left : ProcessesOf(job)) kill(left, SIGKILL);
  kill(pid, SIGKILL);
}

// A start of the command, number `start`.
struct Start {
  pid_t pid = 0;
  int64_t number = 0;
  int status = 0;      // when it has ended
  bool asked = false;  // by a signal, which was passed on
  bool ended = false;  // by this process, since it continued without its ranks
};

// Whether its ranks on this host have gone, and not all of them in order.
bool HasLostItsRanks(ImageKeeper& images, int64_t start) {
  const auto ranks = images.RanksOf(start);
  return ranks.ok() && ranks->present == 0 && ranks->lost > 0;
}

// Waits for the command; passes signals on to it.
void Await(ImageKeeper& images, const std::string& job, Start* start) {
  const sigset_t set = Handled();
  const timespec look = absl::ToTimespec(kLook);
  MonotonicTime with_ranks = MonotonicNow();
  while (waitpid(start->pid, &start->status, WNOHANG) != start->pid) {
    siginfo_t info;
    const int signal = sigtimedwait(&set, &info, &look);
    if (signal > 0 && signal != SIGCHLD) {
      start->asked = true;
      kill(start->pid, signal);
    }
    const MonotonicTime now = MonotonicNow();
    if (start->ended || !HasLostItsRanks(images, start->number)) with_ranks = now;
    if (now - with_ranks < kEndWithoutRanks) continue;
    start->ended = true;
    EndCommand(start->pid, job);
  }
}

// What the command's end was, as far as it tells. A rank that was killed is the reason of most: mpirun then gives 128
// and the signal, srun and shells too.
Status FailureOf(int status, const std::string& command) {
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return absl::OkStatus();
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  const bool killed = code > 128 && code < 128 + NSIG && code != 128 + SIGINT && code != 128 + SIGTERM;
  return WithCause(absl::UnavailableError(absl::StrCat(command, " has ended with exit code ", code)),
                   {-1, killed ? kExitRankCrashed : code});
}

Status FailureOf(const Start& start, const std::string& command) {
  if (start.asked) return absl::OkStatus();
  if (!start.ended) return FailureOf(start.status, command);
  return WithCause(
      absl::UnavailableError(absl::StrCat(command, " continued for ", absl::FormatDuration(kEndWithoutRanks),
                                          " after its ranks had died, and was ended")),
      {-1, kExitRankCrashed});
}

}  // namespace

StatusOr<int> RunAgain(const AgainOptions& options) {
  const sigset_t set = Handled();
  sigprocmask(SIG_BLOCK, &set, nullptr);
  ASSIGN_OR_RETURN(const std::string random, RandomBytes(8));
  const std::string job = absl::BytesToHexString(random);
  ASSIGN_OR_RETURN(const auto images, ImageKeeper::Connect(job));
  RETURN_IF_ERROR(images->Mirror());
  Environment environment = OwnEnvironment();
  environment[kRecoveryJob] = job;
  RestartPolicy policy(options.max_restarts);
  for (int64_t restarts = 0;; ++restarts) {
    environment[kRestarts] = absl::StrCat(restarts);
    Start start;
    start.number = restarts;
    ASSIGN_OR_RETURN(start.pid, Spawn(options.command, environment));
    Await(*images, job, &start);
    const Status failure = FailureOf(start, options.command[0]);
    const RestartPolicy::Verdict verdict = policy.Judge(failure, NewestTurnOf(*images));
    if (verdict.again) {
      Say(absl::StrCat(failure.message(), ": the job starts again (", restarts + 1, ")"));
      environment[kRestartCause] = std::string(failure.message());
      PauseUnlessAsked(verdict.pause);
      continue;
    }
    if (!verdict.why.empty()) Say(verdict.why);
    if (restarts > 0 && !verdict.counted)
      Say(absl::StrCat("the job has started again ", restarts, restarts == 1 ? " time" : " times"));
    images->End().IgnoreError();
    return WIFEXITED(start.status) ? WEXITSTATUS(start.status) : 128 + WTERMSIG(start.status);
  }
}

}  // namespace mslua
