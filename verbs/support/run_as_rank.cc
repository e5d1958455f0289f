#include "verbs/support/run_as_rank.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdio>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/base/exit_code.h"
#include "core/base/hash.h"
#include "core/base/input_file.h"
#include "core/base/printable.h"
#include "core/base/version.h"
#include "launch/job.h"
#include "launch/launcher.h"
#include "launch/this_host.h"
#include "lua/open_session.h"
#include "lua/rank_lua.h"
#include "train/signal_scope.h"
#include "verbs/support/report.h"

namespace mslua {

StatusOr<std::string> ReadTextFile(const std::string& path) { return ReadFile(path, 16 << 20); }

absl::Duration HeartbeatLimit(const cli::CommandLine& command) {
  return command.Given("heartbeat-timeout") ? absl::Seconds(command.Float("heartbeat-timeout")) : kHeartbeatTimeout;
}

NetworkOptions NetworkOf(const cli::CommandLine& command) {
  NetworkOptions network;
  if (command.Given("tls")) network.tls_file = command.String("tls");
  if (command.Given("insecure-network")) network.plaintext = command.Bool("insecure-network");
  return network;
}

namespace {

// What ranks compare when they meet. Paths may differ from host to host.
std::map<std::string, std::string> SharedBy(const SessionOptions& options) {
  std::map<std::string, std::string> shared = {{"version", kVersion}, {"verb", options.verb}};
  const auto text = ReadTextFile(options.file);
  if (text.ok()) shared["recipe"] = absl::StrCat("a file with the hash ", Blake2bHex(*text).substr(0, 16));
  std::vector<std::string> words;
  if (!options.preset.empty()) words.push_back(absl::StrCat("--preset ", options.preset));
  if (options.has_seed) words.push_back(absl::StrCat("--seed ", options.seed));
  for (const auto& [key, value] : options.overrides) {
    if (key != "data_path") words.push_back(absl::StrCat(key, "=", value));
  }
  std::string line = absl::StrJoin(words, " ");
  // The values of a meeting are short, and all of the line is compared.
  if (line.size() > 1000)
    line = absl::StrCat(line.substr(0, 1000), "... (BLAKE2b ", Blake2bHex(line).substr(0, 16), ")");
  shared["command line"] = absl::StrCat("'", line, "'");
  return shared;
}

// `--log-ranks all|0,2`.
StatusOr<bool> Listed(const std::string& list, int rank, int ranks) {
  if (list == "all") return true;
  bool found = false;
  for (const auto word : absl::StrSplit(list, ',')) {
    int r = 0;
    if (!absl::SimpleAtoi(word, &r) || r < 0 || r >= ranks) {
      return absl::InvalidArgumentError(
          absl::StrCat("--log-ranks expects all, or ranks from 0 to ", ranks - 1, " such as 0,2; got '", list, "'"));
    }
    found = found || r == rank;
  }
  return found;
}

// What the session knows of its place, and where its loss lines go.
Status Settle(const cli::CommandLine& command, const Job& job, Session* session) {
  ASSIGN_OR_RETURN(session->prints,
                   Listed(command.Given("log-ranks") ? command.String("log-ranks") : "0", job.rank(), job.size()));
  if (!job.SharesConsole()) session->prints = true;
  const bool prefixed = job.SharesConsole() && job.rank() != 0 && job.identity().source != Identity::Source::kLauncher;
  if (prefixed) session->prefix = absl::StrCat("[rank ", job.rank(), "] ");
  if (command.flags.count("hang-timeout") > 0) session->hang_timeout_s = command.Float("hang-timeout");
  return absl::OkStatus();
}

// What one call of print says stays together among other ranks' lines, and is not lost when the rank is stopped.
Status PrintAtOnce(Session& session) {
  setvbuf(stdout, nullptr, _IOFBF, 1 << 16);
  return session.RunText("local print_ = print\nfunction print(...) print_(...) io.stdout:flush() end", "=mslua/print");
}

// What training that was asked to stop says: it did what it was asked, which is no error.
void SayStopped(const Status& status) {
  std::fflush(stdout);
  std::fprintf(stderr, "mslua: %s\n", PrintableMessage(status.message()).c_str());
}

// One for every command line and folder: who starts the same again continues.
std::string RecoveryName(const cli::CommandLine& command) {
  char folder[PATH_MAX] = "";
  if (getcwd(folder, sizeof folder) == nullptr) *folder = 0;
  return Blake2bHex(absl::StrCat(folder, "\n", absl::StrJoin(command.words, "\n"))).substr(0, 16);
}

// `--elastic MIN:MAX`
Status AllowRanks(const cli::CommandLine& command, Job* job) {
  if (command.flags.count("elastic") == 0 || !command.Given("elastic")) return absl::OkStatus();
  const std::string text = command.String("elastic");
  int64_t least = 0, most = 0;
  if (!ParseRankRange(text, &least, &most))
    return absl::InvalidArgumentError(absl::StrCat("--elastic expects MIN:MAX such as 2:4, got '", text, "'"));
  return job->AllowRanks(least, most, /*recipe=*/false);
}

// Ends this rank's part of the job and gives the exit code. After a failure it ends the process (Job::Finish).
int EndRank(Job* job, const Status& outcome, int code, Groups* groups) {
  const int last = job->Finish(outcome, code, groups);
  std::fflush(stdout);
  job->EndInOrder();
  if (last != kExitOk) _exit(last);
  return last;
}

int RunInJob(const cli::CommandLine& command, SessionOptions options, Joins joins, const Identity& identity,
             absl::FunctionRef<StatusOr<int>(Session&)> work) {
  JobOptions job_options;
  job_options.identity = identity;
  if (command.Given("iface")) job_options.interface = command.String("iface");
  job_options.network = NetworkOf(command);
  job_options.shared = SharedBy(options);
  job_options.what = options.file;
  job_options.heartbeat_limit = HeartbeatLimit(command);
  if (command.flags.count("hang-timeout") > 0) job_options.hang_limit = absl::Seconds(command.Float("hang-timeout"));
  job_options.on_stop = SignalScope::Stop;
  Job job(job_options);
  if (joins == Joins::kAtOnce) {  // a script is alone until it calls init
    options.rank = std::max(0, identity.rank);
    options.ranks = identity.size;
  }
  auto made = OpenSession(std::move(options));
  if (!made.ok() && identity.source == Identity::Source::kLauncher)  // which prints once what all its ranks fail with
    return EndRank(&job, made.status(), ExitCodeOf(made.status()), nullptr);
  if (!made.ok()) return Report(made.status());
  Session& session = **made;
  session.job = &job;

  const auto run = [&]() -> StatusOr<int> {
    // From now on the job knows that this rank has come.
    RETURN_IF_ERROR(job.images().status());
    const bool launched = identity.source == Identity::Source::kLauncher;
    if (launched) {
      RETURN_IF_ERROR(WithExitCode(job.Meet(), kExitEnvironment));
    }
    RETURN_IF_ERROR(Settle(command, job, &session));
    if (identity.size > 1) RETURN_IF_ERROR(PrintAtOnce(session));
    if (joins == Joins::kAtOnce) {
      RETURN_IF_ERROR(JoinRanks(session, command.Given("backend") ? command.String("backend") : ""));
      RETURN_IF_ERROR(AllowRanks(command, &job));
    }
    return work(session);
  };
  const StatusOr<int> result = run();
  int code = result.ok() ? *result : ExitCodeOf(result.status());
  // The work is done and the ranks end together; that records are missing is told by the exit code.
  if (result.ok() && code == kExitOk && !session.records.ok()) code = Report(session.records, kExitStorage);
  // Ranks that train together stop together when they are asked to: that is no failure.
  const bool asked = !result.ok() && (code == kExitInterrupted || code == kExitCheckpointed);
  if (!result.ok()) PrintTraceback(result.status());
  if (asked && (job.rank() == 0 || !job.SharesConsole())) SayStopped(result.status());
  if (job.Alone()) {
    job.EndInOrder();
    return result.ok() || asked ? code : Report(result.status(), code);
  }
  return EndRank(&job, asked ? absl::OkStatus() : result.status(), code, session.groups());
}

// Whether only the script can say how the scheduler's connections are secured (set_ps_context).
bool AsksScript(const Identity& identity, const NetworkOptions& network) {
  return !identity.one_host && network.tls_file.empty() && !CheckNetwork(network, identity.meeting.host).ok();
}

// The script's part before ms.communication.init(), which does not return in a scheduler.
int RunScriptForScheduler(const cli::CommandLine& command, SessionOptions options, const Identity& identity,
                          absl::FunctionRef<StatusOr<int>(Session&)> work) {
  // The scheduler takes these signals; other threads must not.
  const sigset_t set = StopSignals();
  sigprocmask(SIG_BLOCK, &set, nullptr);
  JobOptions job_options;
  job_options.identity = identity;
  job_options.heartbeat_limit = HeartbeatLimit(command);
  job_options.network = NetworkOf(command);
  Job job(job_options);
  const std::string file = options.file;
  auto session = OpenSession(std::move(options));
  if (!session.ok()) return Report(session.status());
  (*session)->job = &job;
  const StatusOr<int> result = work(**session);
  if (!result.ok()) return Report(result.status(), ExitCodeOf(result.status()));
  return Report(absl::InvalidArgumentError(
      absl::StrCat(file, " ended without ms.communication.init(), where the scheduler of MS_ROLE=MS_SCHED begins")));
}

}  // namespace

int RunAsRank(const cli::CommandLine& command, SessionOptions options, Joins joins,
              absl::FunctionRef<StatusOr<int>(Session&)> work) {
  const Status files = CheckOpenFiles(LimitsHere());
  if (!files.ok()) return Report(files, kExitEnvironment);
  const auto identity = WhoAmI(OwnEnvironment(), ReadTextFile);
  if (!identity.ok()) return Report(identity.status(), kExitEnvironment);
  NetworkOptions network = NetworkOf(command);
  const Status one = AddTlsVariable(identity->tls_file, &network);
  if (!one.ok()) return Report(one);
  const int64_t n = command.Given("n") ? command.Int("n") : 1;
  // Ranks of other launchers may all be given their number; workers of a cluster know theirs.
  const bool cluster = identity->source == Identity::Source::kCluster;
  if (n > 1 && identity->source != Identity::Source::kSingle && (cluster || n != identity->size)) {
    return Report(absl::InvalidArgumentError(
        absl::StrCat("-n ", n, " starts ranks, but this process is already ", identity->Line(), ": leave out -n")));
  }
  if (identity->scheduler) {
    command.HandOn();  // the workers' command line
    if (joins == Joins::kAtOnce || !AsksScript(*identity, network)) {
      return RunScheduler(*identity, HeartbeatLimit(command), network);
    }
    return RunScriptForScheduler(command, std::move(options), *identity, work);
  }
  const bool alone = identity->source == Identity::Source::kSingle;
  const std::string recover = command.flags.count("recover") > 0 ? command.String("recover") : "off";
  if (command.Given("recover") && recover != "off" && !alone && identity->recovery.empty()) {
    return Report(absl::InvalidArgumentError(absl::StrCat(
        "--recover starts the ranks again, but this process is already ", identity->Line(),
        ": give it to the command that starts them, mslua again -- mpirun ..., or set MS_ENABLE_RECOVERY=1")));
  }
  const bool elastic = command.flags.count("elastic") > 0 && command.Given("elastic");
  if (elastic && (identity->source != Identity::Source::kCluster || identity->recovery.empty())) {
    return Report(absl::InvalidArgumentError(absl::StrCat(
        "--elastic is for workers of a cluster that starts again (MS_ROLE=MS_WORKER, "
        "MS_ENABLE_RECOVERY=1), and ",
        alone && n > 1 ? absl::StrCat("-n ", n, " starts all ranks here") : absl::StrCat("this is ", identity->Line()),
        ": leave it out; --recover starts a rank again that has died")));
  }
  const bool restarts = command.flags.count("max-restarts") > 0 && command.Given("max-restarts");
  const bool launched = identity->source == Identity::Source::kLauncher;  // whose launcher follows the flag
  if (restarts && !(launched ? !identity->recovery.empty() : alone && recover != "off")) {
    return Report(absl::InvalidArgumentError(absl::StrCat(
        "--max-restarts limits how often --recover starts the ranks again: ",
        alone ? "give --recover too" : absl::StrCat("it has no effect on ", identity->Line(), ", leave it out"))));
  }
  if (alone && (n > 1 || recover != "off")) {
    const Status can = CheckRanks(n, LimitsHere());
    if (!can.ok()) return Report(can, kExitEnvironment);
    LaunchOptions launch;
    launch.ranks = static_cast<int>(n);
    if (command.Given("heartbeat-timeout")) launch.stopped_limit = launch.heartbeat_limit = HeartbeatLimit(command);
    launch.interactive = command.verb == "repl";
    launch.command = command.words;
    launch.command.insert(launch.command.begin(), ProgramFile());
    if (recover != "off") launch.recovery = absl::StrCat(RecoveryName(command), recover == "disk" ? ":disk" : "");
    if (command.Given("max-restarts")) launch.max_restarts = command.Int("max-restarts");
    command.HandOn();
    return RunRanks(launch);
  }
  FollowLauncher();
  // A job that is asked to stop while it starts again saves what it has, at the end of its first step.
  if (!identity->recovery.empty()) SignalScope::Remember();
  ShareCores(*identity, command.words);
  return RunInJob(command, std::move(options), joins, *identity, work);
}

}  // namespace mslua
