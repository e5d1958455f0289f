#include "launch/launcher.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <functional>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "collectives/host/board.h"
#include "core/base/clock.h"
#include "core/base/exit_code.h"
#include "core/base/printable.h"
#include "core/base/spawn.h"
#include "launch/image_keeper.h"
#include "launch/output.h"
#include "launch/restarts.h"
#include "launch/shared_step.h"
#include "launch/this_host.h"
#include "rendezvous/identity.h"
#include "rendezvous/local_meeting.h"
#include "rendezvous/restart_policy.h"
#include "rendezvous/scheduler.h"
#include "rendezvous/socket.h"

namespace mslua {
namespace {

// After the last rank has ended, for a grandchild that holds its output open.
constexpr absl::Duration kLastWords = absl::Milliseconds(300);
// For the scheduler to read what a rank sent before it was killed.
constexpr absl::Duration kLastMessage = absl::Milliseconds(100);
// For the scheduler to say what the ranks that have ended told it.
constexpr absl::Duration kVerdict = absl::Seconds(5);
// For a rank that has closed its connection to end.
constexpr absl::Duration kOwnEnd = absl::Seconds(1);

// For the reader of our output to take the last lines, once the user has asked the job to end.
constexpr absl::Duration kLastLines = absl::Seconds(1);
// So many bytes without a line break are passed on by themselves.
constexpr size_t kLongLine = 64 << 10;

bool SameFile(int a, int b) {
  struct stat first, second;
  return fstat(a, &first) == 0 && fstat(b, &second) == 0 && first.st_dev == second.st_dev &&
         first.st_ino == second.st_ino;
}

// One output of one rank, passed on in whole lines.
class Stream {
 public:
  Stream(Fd from, Output* to, std::string prefix) : from_(std::move(from)), to_(to), prefix_(std::move(prefix)) {}
  int fd() const { return from_.get(); }
  bool open() const { return static_cast<bool>(from_); }
  bool full() const { return to_->Full(); }

  // Passes on what has come. `may_drop`: not while the output is full; nobody reads it.
  void Pump(bool may_drop) {
    char bytes[16384];
    const ssize_t n = read(from_.get(), bytes, sizeof bytes);
    if (n > 0) {
      const absl::string_view got(bytes, static_cast<size_t>(n));
      const size_t line = got.rfind('\n');
      const bool passes = !may_drop || !to_->Full();
      if (line != got.npos) {
        absl::StrAppend(&rest_, got.substr(0, line + 1));
        if (passes) Pass(rest_);
        rest_ = std::string(got.substr(line + 1));
      } else {
        absl::StrAppend(&rest_, got);
      }
      if (rest_.size() >= kLongLine) {  // a part of it
        if (passes) Pass(prefix_.empty() ? rest_ : absl::StrCat(rest_, "\n"));
        rest_.clear();
      }
    } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
      Close();
    }
  }
  void Close() {
    if (!rest_.empty()) Pass(absl::StrCat(rest_, "\n"));
    rest_.clear();
    from_.Close();
  }

 private:
  void Pass(absl::string_view lines) {
    if (prefix_.empty()) return to_->Write(lines);
    std::string text;
    while (!lines.empty()) {
      const size_t end = lines.find('\n') + 1;
      absl::StrAppend(&text, prefix_, lines.substr(0, end));
      lines.remove_prefix(end);
    }
    to_->Write(text);
  }

  Fd from_;
  Output* const to_;
  const std::string prefix_;
  std::string rest_;
};

struct Rank {
  pid_t pid = 0;
  bool ended = false;
  int status = 0;  // of waitpid, when ended
  MonotonicTime ended_at;
  MonotonicTime stopped = MonotonicTime::InfiniteFuture();
  std::vector<Stream> streams;
};

class Launcher {
 public:
  // `images`: of a job that starts again, else null.
  Launcher(const LaunchOptions& options, ImageKeeper* images)
      : options_(options), images_(images), ranks_(options.ranks) {}
  ~Launcher() {
    for (Rank& rank : ranks_) {
      if (rank.pid == 0 || rank.ended) continue;
      kill(rank.pid, SIGKILL);
      waitpid(rank.pid, nullptr, 0);
    }
    if (scheduler_ != nullptr) RemoveSocketFolder(scheduler_->job());
  }

  Status Start();
  // Until all ranks have ended.
  void Watch();
  // The first cause of their failure; OK: they were asked to end, or have not failed.
  Status Cause();
  // Prints the cause, if there is one, and gives the exit code of it all.
  int Result();
  void Say(absl::string_view text) { err_->Write(absl::StrCat("mslua: ", text, "\n")); }
  // Waits until everything is printed. A reader that does not read is waited for until the user interrupts.
  void FlushOutputs();
  // The same between two starts: what the user asks for is the next start's to hear.
  void FlushBeforeRestart();
  // The job's exit code, after everything is printed: that of the lost output, where some is lost and the job is done.
  int AfterOutputs(int code);

 private:
  void FlushUnless(const std::function<bool()>& interrupted);
  Status Spawn(int r, const std::vector<std::string>& environment);
  Status SpawnAtTerminal(const std::vector<std::string>& environment);
  void ReadSignals();
  void PassOn(int signal);
  void Reap();
  void LookForFailures();
  void Fail(const Status& why);
  void KillAll(int signal);
  bool AllEnded() const {
    return std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& r) { return r.ended; });
  }
  // Waits for output, signals and the scheduler.
  void Poll(absl::Duration limit);
  // For the ranks to end by themselves. Those of a job that starts again are not waited for.
  absl::Duration EndLimit(const Status& why) const {
    return !options_.recovery.empty() && MayStartAgain(CauseOf(why).exit_code) ? absl::ZeroDuration()
                                                                               : options_.end_limit;
  }
  int Report(const Status& cause);
  bool Killed(int r) const { return ranks_[r].ended && WIFSIGNALED(ranks_[r].status); }
  // Whether the rank had finished, and left, before a signal killed it.
  bool DoneBeforeSignal(int r) const { return Killed(r) && scheduler_->LeftWith(r).has_value(); }
  // Whether the scheduler may not have read yet what the rank told it before a signal killed it.
  bool LastMessagePending(int r) const {
    return Killed(r) && scheduler_->built() && !scheduler_ended_ && scheduler_->Outcome().ok() &&
           MonotonicNow() - ranks_[r].ended_at < kLastMessage;
  }
  std::string NameOf(int r) const {
    return absl::StrCat("rank ", r, "/", options_.ranks, " (pid ", ranks_[r].pid, ", host ", HostName(), ")");
  }

  const LaunchOptions options_;
  ImageKeeper* const images_;
  std::vector<Rank> ranks_;
  Fd signals_, over_, room_;
  std::shared_ptr<Output> out_, err_;  // one, where both are the same file: lines keep their order
  std::unique_ptr<Scheduler> scheduler_;
  MonotonicTime kill_at_ = MonotonicTime::InfiniteFuture();
  int interrupts_ = 0, first_signal_ = 0;
  bool killed_ = false;  // by us
  bool scheduler_ended_ = false;
  Status cause_;
};

Status Launcher::Start() {
  // Blocked before there are threads, so that only signals_ takes them.
  sigset_t set;
  sigemptyset(&set);
  for (int signal : {SIGCHLD, SIGINT, SIGTERM, SIGQUIT}) sigaddset(&set, signal);
  // A signal that is blocked is taken even where nohup has had it ignored.
  struct sigaction hangup;
  if (sigaction(SIGHUP, nullptr, &hangup) == 0 && hangup.sa_handler != SIG_IGN) sigaddset(&set, SIGHUP);
  sigprocmask(SIG_BLOCK, &set, nullptr);
  signal(SIGPIPE, SIG_IGN);
  signals_ = Fd(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (images_ != nullptr) RETURN_IF_ERROR(images_->Mirror());
  over_ = Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  room_ = Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  out_ = std::make_shared<Output>(STDOUT_FILENO, room_.get());
  err_ = SameFile(STDOUT_FILENO, STDERR_FILENO) ? out_ : std::make_shared<Output>(STDERR_FILENO, room_.get());

  SchedulerOptions scheduler;
  ASSIGN_OR_RETURN(scheduler.meeting, NewMeetingName());
  scheduler.workers = options_.ranks;
  scheduler.differing_ends = true;
  scheduler.id_name = "rank";
  // Whether a rank has ended or was stopped the launcher sees itself; a silent one may wait for a core.
  scheduler.heartbeat_limit = std::max(absl::Duration(absl::Seconds(30)), options_.heartbeat_limit);
  // The ranks end with the launcher. While it is stopped (Ctrl-Z) they continue.
  scheduler.own_heartbeat_limit = absl::Hours(24 * 365);
  scheduler.who = absl::StrCat("pid ", getpid(), ", host ", HostName());
  scheduler.progress = [this](const std::string& line) { Say(line); };
  scheduler.warn = scheduler.progress;
  scheduler.on_over = [this] {
    const uint64_t one = 1;
    if (write(over_.get(), &one, sizeof one) < 0) return;  // full: it is set
  };
  ASSIGN_OR_RETURN(scheduler_, Scheduler::Start(scheduler));

  Environment environment = OwnEnvironment();
  for (const auto& [name, value] : ThreadVariables(environment, options_.ranks, UsableCores()))
    environment[name] = value;
  environment[kLauncherSize] = absl::StrCat(options_.ranks);
  environment[kLauncherMeeting] = ToString(scheduler_->endpoint());
  environment[kLauncherPid] = absl::StrCat(getpid());
  if (!options_.recovery.empty()) {
    environment[kRecoveryJob] = options_.recovery;
    environment[kRestarts] = absl::StrCat(options_.restarts);
    environment[kRestartCause] = options_.restart_cause;
  }
  for (int r = 0; r < options_.ranks; ++r) {
    environment[kLauncherRank] = absl::StrCat(r);
    std::vector<std::string> variables;
    for (const auto& [name, value] : environment) variables.push_back(absl::StrCat(name, "=", value));
    RETURN_IF_ERROR(Spawn(r, variables));
  }
  return absl::OkStatus();
}

// In this process's group, so that the terminal is its own.
Status Launcher::SpawnAtTerminal(const std::vector<std::string>& environment) {
  const SpawnAttributes attributes({SIGPIPE});
  const int error = posix_spawn(&ranks_[0].pid, options_.command[0].c_str(), nullptr, attributes.get(),
                                SpawnTexts(options_.command).data(), SpawnTexts(environment).data());
  if (error == 0) return absl::OkStatus();
  ranks_[0].pid = 0;
  return absl::InternalError(absl::StrCat("cannot start ", options_.command[0], ": ", strerror(error)));
}

// In a process group of its own, so that a terminal's interrupt comes through us alone. The rank itself asks to die
// with us (PrepareRank).
Status Launcher::Spawn(int r, const std::vector<std::string>& environment) {
  if (options_.interactive && r == 0) return SpawnAtTerminal(environment);
  int out[2], err[2];
  if (pipe2(out, O_CLOEXEC) != 0) return absl::ResourceExhaustedError(absl::StrCat("no pipe: ", strerror(errno)));
  const Fd out_end(out[1]);
  const std::string prefix = r == 0 ? "" : absl::StrCat("[rank ", r, "] ");
  ranks_[r].streams.emplace_back(Fd(out[0]), out_.get(), prefix);
  if (pipe2(err, O_CLOEXEC) != 0) return absl::ResourceExhaustedError(absl::StrCat("no pipe: ", strerror(errno)));
  const Fd err_end(err[1]);
  ranks_[r].streams.emplace_back(Fd(err[0]), err_.get(), prefix);
  for (const Stream& stream : ranks_[r].streams) fcntl(stream.fd(), F_SETFL, O_NONBLOCK);

  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&files, out[1], 1);
  posix_spawn_file_actions_adddup2(&files, err[1], 2);
  const SpawnAttributes attributes({SIGPIPE}, POSIX_SPAWN_SETPGROUP);
  const int error = posix_spawn(&ranks_[r].pid, options_.command[0].c_str(), &files, attributes.get(),
                                SpawnTexts(options_.command).data(), SpawnTexts(environment).data());
  posix_spawn_file_actions_destroy(&files);
  if (error == 0) return absl::OkStatus();
  ranks_[r].pid = 0;
  return absl::InternalError(absl::StrCat("cannot start ", options_.command[0], ": ", strerror(error)));
}

void Launcher::ReadSignals() {
  signalfd_siginfo info;
  while (read(signals_.get(), &info, sizeof info) == sizeof info) {
    if (static_cast<int>(info.ssi_signo) == SIGCHLD) {
      Reap();
    } else if (options_.interactive && (info.ssi_signo == SIGINT || info.ssi_signo == SIGQUIT)) {
      continue;  // rank 0 got it too
    } else {
      PassOn(static_cast<int>(info.ssi_signo));
    }
  }
}

void Launcher::PassOn(int signal) {
  // A terminal that closes and its shell send one each.
  if (signal == SIGHUP && interrupts_ > 0) return;
  if (++interrupts_ == 1) {
    first_signal_ = signal;
    Say("stopping; once more to stop at once");
    KillAll(signal);
  } else {
    KillAll(SIGKILL);
  }
}

void Launcher::KillAll(int signal) {
  killed_ = killed_ || signal == SIGKILL;
  for (const Rank& rank : ranks_) {
    if (!rank.ended && rank.pid != 0) kill(rank.pid, signal);
  }
}

void Launcher::Reap() {
  for (Rank& rank : ranks_) {
    int status = 0;
    while (!rank.ended && waitpid(rank.pid, &status, WNOHANG | WUNTRACED | WCONTINUED) == rank.pid) {
      if (WIFSTOPPED(status)) {
        rank.stopped = MonotonicNow();
      } else if (WIFCONTINUED(status)) {
        rank.stopped = MonotonicTime::InfiniteFuture();
      } else {
        rank.ended = true;
        rank.status = status;
        rank.ended_at = MonotonicNow();
      }
    }
  }
}

void Launcher::Fail(const Status& why) {
  if (!cause_.ok()) return;
  cause_ = why;
  kill_at_ = MonotonicNow() + EndLimit(why);
  scheduler_->Fail(why);
}

// What the ranks cannot report themselves; their own reports come through the scheduler.
void Launcher::LookForFailures() {
  // Ranks that have met end by themselves after a signal. Before that each would wait for one that has ended.
  if (killed_ || (interrupts_ > 0 && scheduler_->built())) return;
  for (int r = 0; r < options_.ranks && cause_.ok(); ++r) {
    const Rank& rank = ranks_[r];
    if (!rank.ended && MonotonicNow() - rank.stopped > options_.stopped_limit) {
      Fail(
          WithCause(absl::UnavailableError(absl::StrCat(NameOf(r), " was stopped by a signal and did not continue for ",
                                                        absl::FormatDuration(options_.stopped_limit))),
                    {r, kExitHang}));
    } else if (Killed(r) && !DoneBeforeSignal(r) && !LastMessagePending(r)) {
      const int signal = WTERMSIG(rank.status);
      Fail(WithCause(absl::UnavailableError(absl::StrCat(
                         NameOf(r), " was killed by signal ", signal, " (", strsignal(signal), ")",
                         signal == SIGKILL ? "; when memory ran out, the kernel's log (dmesg) says so" : "",
                         scheduler_->CrashNoteOf(r))),
                     {r, kExitRankCrashed}));
    } else if (rank.ended && !scheduler_->built() && scheduler_->Outcome().ok()) {
      Fail(WithCause(absl::UnavailableError(absl::StrCat(NameOf(r), " has ended with exit code ",
                                                         WEXITSTATUS(rank.status), " before all ranks had come")),
                     {r, WEXITSTATUS(rank.status) != 0 ? WEXITSTATUS(rank.status) : kExitHang}));
    }
  }
}

void Launcher::Poll(absl::Duration limit) {
  std::vector<pollfd> entries = {{signals_.get(), POLLIN, 0}, {over_.get(), POLLIN, 0}, {room_.get(), POLLIN, 0}};
  const size_t first = entries.size();
  // A rank waits for who reads its lines, until it is to stop: then it must come to the end of its step. What ranks
  // that have ended left in their pipes is little, and is kept.
  const bool ending = interrupts_ > 0 || !cause_.ok(), reads_all = ending || AllEnded();
  std::vector<Stream*> streams;
  for (Rank& rank : ranks_) {
    for (Stream& stream : rank.streams) {
      if (!stream.open() || (stream.full() && !reads_all)) continue;
      entries.push_back({stream.fd(), POLLIN, 0});
      streams.push_back(&stream);
    }
  }
  poll(entries.data(), entries.size(), static_cast<int>(std::max<int64_t>(0, absl::ToInt64Milliseconds(limit))));
  for (size_t i = 0; i < streams.size(); ++i) {
    if (entries[i + first].revents != 0) streams[i]->Pump(ending);
  }
  uint64_t count;
  if (entries[2].revents != 0 && read(room_.get(), &count, sizeof count) < 0) return;
  if (entries[0].revents != 0) ReadSignals();
  if (entries[1].revents != 0) {
    if (read(over_.get(), &count, sizeof count) < 0) return;
    scheduler_ended_ = true;
    // A job that went wrong is over soon: the ranks know. One that went well may still have something to do.
    const Status outcome = scheduler_->Outcome();
    if (outcome.ok()) return;
    // A rank that has closed its connection is about to end. How it ended says why; a kill would hide that.
    const auto cause = CauseOf(outcome);
    const bool ending_now = cause.rank >= 0 && cause.exit_code == kExitRankCrashed && !ranks_[cause.rank].ended;
    kill_at_ =
        std::min(kill_at_, MonotonicNow() + std::max(EndLimit(outcome), ending_now ? kOwnEnd : absl::ZeroDuration()));
  }
}

void Launcher::Watch() {
  while (!AllEnded()) {
    absl::Duration limit = absl::Milliseconds(200);
    limit = std::min(limit, kill_at_ - MonotonicNow());
    for (int r = 0; r < options_.ranks && cause_.ok(); ++r) {
      if (LastMessagePending(r)) limit = std::min(limit, absl::Milliseconds(10));
    }
    Poll(limit);
    LookForFailures();
    if (MonotonicNow() < kill_at_) continue;
    KillAll(SIGKILL);
    kill_at_ = MonotonicTime::InfiniteFuture();
  }
  const bool failed = std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.status != 0; });
  const MonotonicTime verdict = MonotonicNow() + kVerdict;
  while (failed && !killed_ && interrupts_ == 0 && cause_.ok() && scheduler_->built() && !scheduler_ended_ &&
         MonotonicNow() < verdict) {
    Poll(absl::Milliseconds(20));
  }
  LookForFailures();
  const MonotonicTime deadline = MonotonicNow() + kLastWords;
  const auto open = [this] {
    return std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) {
      return std::any_of(rank.streams.begin(), rank.streams.end(), [](const Stream& s) { return s.open(); });
    });
  };
  while (open() && MonotonicNow() < deadline) Poll(deadline - MonotonicNow());
  for (Rank& rank : ranks_) {
    for (Stream& stream : rank.streams) {
      if (stream.open()) stream.Close();
    }
  }
}

void Launcher::FlushUnless(const std::function<bool()>& interrupted) {
  for (const auto& output : {out_, err_}) {
    absl::Duration left = kLastLines;  // once interrupted
    constexpr absl::Duration kLook = absl::Milliseconds(50);
    while (!output->Flush(kLook) && left > absl::ZeroDuration()) {
      if (interrupted()) left -= kLook;
    }
  }
}

void Launcher::FlushOutputs() {
  FlushUnless([this] {
    ReadSignals();
    return interrupts_ > 0;
  });
}

void Launcher::FlushBeforeRestart() { FlushUnless(StopIsPending); }

int Launcher::AfterOutputs(int code) {
  FlushOutputs();
  const Status printed = LossOfOutput(out_->error());
  if (code != kExitOk || printed.ok()) return code;
  std::fputs(absl::StrCat("mslua: error: ", printed.message(), "\n").c_str(), stderr);
  return ExitCodeIn(printed);
}

int Launcher::Report(const Status& cause) {
  Say(absl::StrCat("error[", CauseOf(cause).exit_code, "] ", PrintableMessage(cause.message())));
  return CauseOf(cause).exit_code;
}

int Launcher::Result() {
  const auto code = [this](const Rank& rank) {
    const int r = static_cast<int>(&rank - ranks_.data());
    return WIFEXITED(rank.status) ? WEXITSTATUS(rank.status) : scheduler_->LeftWith(r).value_or(-1);
  };
  for (int r = 0; r < options_.ranks; ++r) {
    if (!killed_ && DoneBeforeSignal(r))
      Say(absl::StrCat("warning: ", NameOf(r), " was killed by signal ", WTERMSIG(ranks_[r].status), " (",
                       strsignal(WTERMSIG(ranks_[r].status)), ") after it had finished"));
  }
  if (interrupts_ > 0) {
    const bool saved =
        std::all_of(ranks_.begin(), ranks_.end(), [&](const Rank& rank) { return code(rank) == kExitCheckpointed; });
    const bool done = std::all_of(ranks_.begin(), ranks_.end(), [&](const Rank& rank) { return code(rank) == 0; });
    if (done) return kExitOk;
    // Ranks that stop as they are asked to have not failed; one whose checkpoint is not there has.
    const Status reported = scheduler_->Outcome();
    if (interrupts_ == 1 && !reported.ok() && CauseOf(reported).exit_code == kExitStorage) return Report(reported);
    return saved && first_signal_ != SIGINT ? kExitCheckpointed : kExitInterrupted;
  }
  const Status cause = Cause();
  if (!cause.ok()) return Report(cause);
  for (const Rank& rank : ranks_) {
    if (code(rank) != 0) return code(rank);
  }
  return kExitOk;
}

Status Launcher::Cause() {
  if (interrupts_ > 0) return absl::OkStatus();
  // What a rank has reported comes before what was seen of its end.
  Status reported = scheduler_->Outcome();
  const int r = CauseOf(reported).rank;
  if (absl::IsUnavailable(reported) && r >= 0 && WIFEXITED(ranks_[r].status)) {
    const std::string what = absl::StrCat(NameOf(r), " has ended with exit code ", WEXITSTATUS(ranks_[r].status),
                                          " and not by the end of its file or an error");
    reported = WithCause(absl::UnavailableError(what), CauseOf(reported));
  }
  // A rank that has lost another one may report that as something else.
  const bool lost = !options_.recovery.empty() && !cause_.ok() && MayStartAgain(CauseOf(cause_).exit_code) &&
                    CauseOf(reported).exit_code == kExitEnvironment;
  if (!lost && (absl::IsAborted(reported) || (cause_.ok() && !reported.ok()))) cause_ = reported;
  return cause_;
}

}  // namespace

namespace {

int ReportStart(const Status& started) {
  const int code = absl::IsPermissionDenied(started) ? kExitSecurity : kExitEnvironment;
  std::fputs(absl::StrCat("mslua: error[", code, "] ", PrintableMessage(started.message()), "\n").c_str(), stderr);
  return code;
}

// Starts the ranks until the job is done or cannot be helped.
int RunAndRecover(LaunchOptions options) {
  const std::string job = options.recovery.substr(0, options.recovery.find(':'));
  // Two jobs would take each other's memory for their own.
  const auto only = MeetingFolder::Make(absl::StrCat("meet-launcher-", job));
  if (absl::IsAlreadyExists(only.status())) {
    std::fputs(
        "mslua: error: this command runs in this folder already, with --recover: give this run another folder or "
        "other arguments, or wait until that one has ended\n",
        stderr);
    return kExitUsage;
  }
  if (!only.ok()) return ReportStart(only.status());
  const auto images = ImageKeeper::Connect(job);
  if (!images.ok()) return ReportStart(images.status());
  std::unique_ptr<SharedStep> step;  // where nothing else is kept in memory
  if (job != options.recovery) {
    auto made = SharedStep::Make(**images);
    if (!made.ok()) return ReportStart(made.status());
    step = std::move(*made);
  }
  RestartPolicy policy(options.max_restarts);
  for (options.restarts = 0;; ++options.restarts) {
    if (step != nullptr) step->Set(SharedStep::kNone);
    Launcher launcher(options, images->get());
    const Status started = launcher.Start();
    if (!started.ok()) return ReportStart(started);
    launcher.Watch();
    const Status cause = launcher.Cause();
    const RestartPolicy::Verdict verdict =
        policy.Judge(cause, step != nullptr ? JobTurn{0, step->Get()} : NewestTurnOf(**images));
    if (!verdict.again) {
      if (!verdict.why.empty()) launcher.Say(verdict.why);
      if (options.restarts > 0 && !verdict.counted) {
        launcher.Say(
            absl::StrCat("the job has started again ", options.restarts, options.restarts == 1 ? " time" : " times"));
      }
      const int code = launcher.Result();
      // A job that was asked to stop, and has saved, continues later.
      if (code != kExitCheckpointed) (*images)->End().IgnoreError();
      return launcher.AfterOutputs(code);
    }
    launcher.Say(
        absl::StrCat(PrintableMessage(cause.message()), ": the job starts again (", options.restarts + 1, ")"));
    launcher.FlushBeforeRestart();
    options.restart_cause = PrintableMessage(cause.message());
    PauseUnlessAsked(verdict.pause);
  }
}

}  // namespace

int RunRanks(const LaunchOptions& options) {
  if (!options.recovery.empty()) return RunAndRecover(options);
  Launcher launcher(options, nullptr);
  const Status started = launcher.Start();
  if (!started.ok()) return ReportStart(started);
  launcher.Watch();
  return launcher.AfterOutputs(launcher.Result());
}

}  // namespace mslua
