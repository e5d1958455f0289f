#include "launch/again.h"

#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "core/base/authentication.h"
#include "core/base/exit_code.h"
#include "core/base/printable.h"
#include "launch/image_keeper.h"
#include "launch/restarts.h"
#include "launch/this_host.h"
#include "rendezvous/cause.h"
#include "rendezvous/identity.h"
#include "rendezvous/restart_policy.h"

namespace mslua {
namespace {

void Say(const std::string& line) { std::fputs(absl::StrCat("mslua: ", PrintableMessage(line), "\n").c_str(), stderr); }

sigset_t Handled() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGCHLD, SIGINT, SIGTERM, SIGHUP}) sigaddset(&set, signal);
  return set;
}

StatusOr<pid_t> Start(const std::vector<std::string>& command, const Environment& environment) {
  std::vector<std::string> variables;
  for (const auto& [name, value] : environment) variables.push_back(absl::StrCat(name, "=", value));
  const auto pointers = [](const std::vector<std::string>& texts) {
    std::vector<char*> all;
    for (const std::string& text : texts) all.push_back(const_cast<char*>(text.c_str()));
    all.push_back(nullptr);
    return all;
  };
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  pid_t pid = 0;
  const int error = posix_spawnp(&pid, command[0].c_str(), nullptr, &attributes, pointers(command).data(),
                                 pointers(variables).data());
  posix_spawnattr_destroy(&attributes);
  if (error != 0) return absl::NotFoundError(absl::StrCat("cannot start ", command[0], ": ", strerror(error)));
  return pid;
}

// Waits for the command; passes signals on to it. `*asked`: there was one.
int Await(pid_t pid, bool* asked) {
  const sigset_t set = Handled();
  while (true) {
    int status = 0;
    const pid_t ended = waitpid(pid, &status, WNOHANG);
    if (ended == pid) return status;
    siginfo_t info;
    if (sigwaitinfo(&set, &info) < 0 || info.si_signo == SIGCHLD) continue;
    *asked = true;
    kill(pid, info.si_signo);
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

}  // namespace

StatusOr<int> RunAgain(const AgainOptions& options) {
  const sigset_t set = Handled();
  sigprocmask(SIG_BLOCK, &set, nullptr);
  ASSIGN_OR_RETURN(const std::string random, RandomBytes(8));
  const std::string job = absl::BytesToHexString(random);
  ASSIGN_OR_RETURN(const auto images, ImageKeeper::Connect(job));
  Environment environment = OwnEnvironment();
  environment[kRecoveryJob] = job;
  RestartPolicy policy(options.max_restarts);
  for (int64_t restarts = 0;; ++restarts) {
    environment[kRestarts] = absl::StrCat(restarts);
    ASSIGN_OR_RETURN(const pid_t pid, Start(options.command, environment));
    bool asked = false;
    const int status = Await(pid, &asked);
    const Status failure = asked ? absl::OkStatus() : FailureOf(status, options.command[0]);
    const RestartPolicy::Verdict verdict = policy.Judge(failure, NewestTurnOf(*images));
    if (verdict.again) {
      Say(absl::StrCat(failure.message(), ": the job starts again (", restarts + 1, ")"));
      environment[kRestartCause] = std::string(failure.message());
      PauseUnlessAsked(verdict.pause);
      continue;
    }
    if (!verdict.why.empty()) Say(verdict.why);
    if (restarts > 0) Say(absl::StrCat("the job has started again ", restarts, restarts == 1 ? " time" : " times"));
    images->End().IgnoreError();
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
}

}  // namespace mslua
