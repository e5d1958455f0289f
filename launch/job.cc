#include "launch/job.h"

#include <linux/close_range.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <limits>
#include <random>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "collectives/backends/registry.h"
#include "collectives/groups.h"
#include "collectives/host/board.h"
#include "core/base/atomic_file.h"
#include "core/base/clock.h"
#include "core/base/exit_code.h"
#include "core/base/folder.h"
#include "core/base/input_file.h"
#include "core/base/parallel_for.h"
#include "core/base/printable.h"
#include "core/image/image.h"
#include "launch/scheduler_journal.h"
#include "launch/stopped_ranks.h"
#include "launch/this_host.h"
#include "rendezvous/handshake.h"
#include "rendezvous/job_secret.h"
#include "rendezvous/local_meeting.h"
#include "rendezvous/restart_policy.h"
#include "rendezvous/socket.h"
#include "rendezvous/stale_folders.h"

namespace mslua {
namespace {

using Source = Identity::Source;

constexpr absl::Duration kGoodbye = absl::Milliseconds(500);  // for the main thread to end by itself
constexpr absl::Duration kNews = absl::Seconds(3);            // between lines of a rank that waits
// Of a process that waits for the job's secret: for a connection to the scheduler, for its answer, between questions.
constexpr absl::Duration kConnects = absl::Milliseconds(100), kAnswers = absl::Seconds(1), kQuestion = absl::Seconds(1);
constexpr absl::Duration kFirstCause = absl::Seconds(2);  // for the scheduler to see what a rank's end was
constexpr absl::Duration kLastLeave = absl::Seconds(5);   // from the first rank's end to the last one's
// Rank 0 may write a checkpoint or print for hours after the others have finished; who dies is seen at once.
constexpr absl::Duration kEndLimit = absl::Hours(24 * 30);

void Say(const std::string& line) { std::fputs(absl::StrCat("mslua: ", PrintableMessage(line), "\n").c_str(), stderr); }

// Ranks of this host, as far as is known before they meet: all of them, unless somebody says.
int RanksHere(const Identity& identity) { return identity.local_size > 0 ? identity.local_size : identity.size; }

// The folder of the scheduler's process where the job's secret is, when no variable names a file.
StatusOr<std::string> DefaultSecretFile(const Endpoint& scheduler) {
  ASSIGN_OR_RETURN(const std::string folder, MeetingPath(MeetingName(scheduler)));
  return absl::StrCat(folder, "/secret");
}

// PermissionDenied, with the scheduler's reason: it refuses this process, whatever secret that has. OK: it does not, or
// nobody answers there.
Status AskScheduler(const Endpoint& scheduler) {
  const auto socket = ConnectTcp(scheduler, MonotonicNow() + kConnects);
  const Status asked = socket.ok() ? AskWithoutSecret(*socket, MonotonicNow() + kAnswers) : absl::OkStatus();
  if (!absl::IsPermissionDenied(asked)) return absl::OkStatus();
  return WithCause(Annotate(asked, absl::StrCat("scheduler at ", ToString(scheduler))), {-1, kExitSecurity});
}

// The job's secret for a process that does not run the scheduler. Waits until there is one. A scheduler with TLS makes
// none, so that a process without (`tls` is false) asks it.
StatusOr<std::string> AwaitSecret(const Identity& identity, const Endpoint& scheduler, bool tls) {
  std::string path = identity.secret_file;
  const bool given = !path.empty();
  const bool elsewhere = !given && (identity.source != Source::kCluster || !IsOwnAddress(scheduler.host));
  if (elsewhere && !tls) RETURN_IF_ERROR(AskScheduler(scheduler));
  if (elsewhere) {
    return absl::PermissionDeniedError(absl::StrCat(
        "ranks of several hosts meet at ", ToString(scheduler), ", and each has to prove that it knows the ",
        "job's secret; fix: set ", kJobSecretVariable, " to a file that this process can read (",
        identity.source == Source::kCluster ? "the scheduler says which it has made"
                                            : "rank 0 makes it when there is none",
        "; copy it to hosts that do not share its file system, mode 600)"));
  }
  if (!given) {
    ASSIGN_OR_RETURN(path, DefaultSecretFile(scheduler));
  }
  const MonotonicTime deadline = MonotonicNow() + absl::Seconds(identity.meeting_timeout_s);
  MonotonicTime next_news = MonotonicNow() + kNews, next_question = MonotonicNow();
  while (true) {
    // Without a variable the file is its scheduler's, which may have been killed.
    const bool held = given || IsHeld(path.substr(0, path.rfind('/')));
    const auto secret = held ? ReadJobSecret(path) : absl::NotFoundError(absl::StrCat("no scheduler holds ", path));
    if (!absl::IsNotFound(secret.status())) return secret;
    if (!tls && MonotonicNow() >= next_question) {
      RETURN_IF_ERROR(AskScheduler(scheduler));
      next_question = MonotonicNow() + kQuestion;
    }
    if (MonotonicNow() >= deadline) {
      return absl::DeadlineExceededError(absl::StrCat("the job's secret is not there after ",
                                                      absl::FormatDuration(absl::Seconds(identity.meeting_timeout_s)),
                                                      ": ", secret.status().message()));
    }
    if (MonotonicNow() >= next_news) {
      next_news = MonotonicNow() + kNews;
      Say(absl::StrCat("waiting for the job's secret: ", secret.status().message()));
    }
    absl::SleepFor(absl::Milliseconds(20));
  }
}

// The secret that the variable's file has, for the process that runs the scheduler; it is made when there is none.
StatusOr<std::string> MakeGivenSecret(const std::string& path) {
  bool made = false;
  ASSIGN_OR_RETURN(const std::string secret, MakeJobSecret(path, &made));
  if (made) Say(absl::StrCat("made the job's secret, ", path));
  return secret;
}

Status NotEncrypted(const BackendDef& backend) {
  return WithCause(
      absl::PermissionDeniedError(absl::StrCat("the back end ", backend.name,
                                               " does not encrypt connections between "
                                               "hosts, and the job has a TLS configuration: use --backend ",
                                               kDefaultBackend, ", or leave out --tls")),
      {-1, kExitSecurity});
}

// What the scheduler of a cluster and its workers must be told alike.
std::map<std::string, std::string> SharedWithScheduler(const Identity& identity) {
  return {{"MS_ENABLE_RECOVERY", identity.recovery_path.empty() ? "0" : "1"},
          {"MS_WORKER_NUM", absl::StrCat(identity.size)}};
}

// What gives a rank its number.
std::string RankVariable(Source source) {
  switch (source) {
    case Source::kRankTable:
      return "RANK_ID";
    case Source::kMpi:
      return "OMPI_COMM_WORLD_RANK";
    case Source::kSlurm:
      return "SLURM_PROCID";
    case Source::kTorchrun:
      return "RANK";
    default:
      return "MS_NODE_ID";
  }
}

// Text of a fixed size, as collectives move it.
using Card = std::array<char, 128>;
Card CardOf(const std::string& text) {
  Card card = {};
  text.copy(card.data(), card.size() - 1);
  return card;
}

}  // namespace

void FollowLauncher() {
  const char* launcher = getenv(kLauncherPid);
  if (launcher == nullptr || getenv(kLauncherRank) == nullptr) return;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != atoi(launcher)) _exit(kExitRankCrashed);  // it ended before we asked
}

void ShareCores(const Identity& identity, const std::vector<std::string>& arguments) {
  if (identity.scheduler || identity.source == Source::kLauncher) return;
  // A starter that binds each rank to some of the cores has shared them out.
  const bool bound = UsableCores() < HostCores();
  const int ranks = bound ? 1 : RanksHere(identity);
  const Environment missing = ThreadVariables(OwnEnvironment(), ranks, UsableCores());
  if (missing.empty()) return;
  for (const auto& [name, value] : missing) setenv(name.c_str(), value.c_str(), 1);
  std::vector<char*> argv = {const_cast<char*>("mslua")};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  execv("/proc/self/exe", argv.data());
}

sigset_t StopSignals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGTERM, SIGINT}) sigaddset(&set, signal);
  struct sigaction hangup = {};
  if (sigaction(SIGHUP, nullptr, &hangup) == 0 && hangup.sa_handler != SIG_IGN) sigaddset(&set, SIGHUP);
  return set;
}

namespace {

constexpr char kStopAsked[] = "MSLUA_STOP_ASKED";  // of StartAnew, for the program that it starts
std::atomic<int> stop_asked{0};

}  // namespace

void HandOnStop(int signal) { stop_asked = signal; }

int TakeHandedStop() {
  const char* const text = getenv(kStopAsked);
  int signal = 0;
  if (text == nullptr || !absl::SimpleAtoi(text, &signal)) return 0;
  unsetenv(kStopAsked);
  return signal == SIGTERM || signal == SIGINT || signal == SIGHUP ? signal : 0;
}

void StartAnew(int rank, int64_t epoch) {
  // What the kernel knows of this process's start; this program may be changing its environment.
  const auto words_of = [](const char* path) {
    std::ifstream file(path, std::ios::binary);
    std::vector<std::string> words;
    for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
    return words;
  };
  std::vector<std::string> arguments = words_of("/proc/self/cmdline"), environment = words_of("/proc/self/environ");
  const auto names = [&](const char* name) {
    return std::any_of(environment.begin(), environment.end(),
                       [&](const std::string& e) { return absl::StartsWith(e, absl::StrCat(name, "=")); });
  };
  // A worker without a name keeps its rank.
  if (!names("MS_NODE_ID") && rank >= 0) environment.push_back(absl::StrCat("MS_NODE_ID=", rank));
  const auto set = [&](const char* name, int64_t value) {
    const std::string begin = absl::StrCat(name, "=");
    environment.erase(std::remove_if(environment.begin(), environment.end(),
                                     [&](const std::string& e) { return absl::StartsWith(e, begin); }),
                      environment.end());
    if (value > 0) environment.push_back(absl::StrCat(begin, value));
  };
  set(kEpoch, epoch);
  set(kStopAsked, stop_asked);
  const auto pointers = [](std::vector<std::string>& texts) {
    std::vector<char*> all;
    for (std::string& text : texts) all.push_back(&text[0]);
    all.push_back(nullptr);
    return all;
  };
  const std::vector<char*> argv = pointers(arguments), envp = pointers(environment);
  // What the program's libraries and the user's script have opened is not the next program's.
  syscall(SYS_close_range, 3, ~0U, CLOSE_RANGE_CLOEXEC);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  execve("/proc/self/exe", argv.data(), envp.data());
  _exit(kExitRankCrashed);
}

Job::Job(const JobOptions& options)
    : options_(options),
      identity_(options.identity),
      size_(identity_.size),
      epoch_(identity_.epoch),
      network_(options.network) {
  if (network_.tls_file.empty()) network_.tls_file = identity_.tls_file;
}

Job::~Job() = default;

void Job::SetNetwork(const NetworkOptions& network) {
  if (network_.tls_file.empty()) network_.tls_file = network.tls_file;
  if (!network.client_password.empty()) network_.client_password = network.client_password;
  if (!network.server_password.empty()) network_.server_password = network.server_password;
  if (!network_.plaintext) network_.plaintext = network.plaintext;
}

Status Job::OpenNetwork() {
  if (!Alone() && !Interface().empty()) RETURN_IF_ERROR(InterfaceAddress(Interface()).status());
  if (tls_ != nullptr) return absl::OkStatus();
  // One rank speaks for all of a console.
  const bool speaks = !SharesConsole() || identity_.rank <= 0;
  ASSIGN_OR_RETURN(tls_, LoadTls(network_, speaks ? Say : std::function<void(const std::string&)>()));
  return absl::OkStatus();
}

std::string Job::Name() const {
  return absl::StrCat("rank ", rank(), "/", size(), " (pid ", getpid(), ", host ", HostName(), ")");
}

bool Job::SharesConsole() const {
  return identity_.source != Source::kCluster && identity_.source != Source::kRankTable;
}

Status Job::AllowRanks(int64_t least, int64_t most, bool recipe) {
  if (least < 1 || most < least || most > std::numeric_limits<uint16_t>::max()) {
    return absl::InvalidArgumentError(
        absl::StrCat(recipe ? "elastic" : "--elastic", ": expected 1 <= min <= max, got ", least, " and ", most));
  }
  if (!StartsItself() && rank() == 0 && size() > 1)
    Say("elastic has no effect here: it is for clusters that start again (MS_ENABLE_RECOVERY=1)");
  if (!StartsItself() || (recipe && ranks_allowed_)) return absl::OkStatus();
  ranks_allowed_ = !recipe;
  membership_->TellElastic(static_cast<int>(least), static_cast<int>(most));
  return absl::OkStatus();
}

StatusOr<ImageKeeper*> Job::images() {
  if (identity_.recovery.empty() || identity_.recovery_disk) return nullptr;
  const std::lock_guard<std::mutex> lock(images_mutex_);
  if (images_ == nullptr) {
    ASSIGN_OR_RETURN(auto images, ImageKeeper::Connect(identity_.recovery));
    RETURN_IF_ERROR(images->BeRank(identity_.restarts));
    // No other process of this host starts it again.
    if (StartsItself()) RETURN_IF_ERROR(images->Mirror());
    images_ = std::move(images);
  }
  return images_.get();
}

StatusOr<std::unique_ptr<SharedStep>> Job::shared_step() const {
  if (!identity_.recovery_disk || rank() != 0) return nullptr;
  ASSIGN_OR_RETURN(const auto keeper, ImageKeeper::Connect(identity_.recovery));
  return SharedStep::Find(*keeper);
}

void Job::KeepImages() {
  const std::lock_guard<std::mutex> lock(images_mutex_);
  if (images_ != nullptr) images_->KeepOwn().IgnoreError();  // else the job resumes from older ones
}

void Job::EndInOrder() {
  const std::lock_guard<std::mutex> lock(images_mutex_);
  if (images_ != nullptr) images_->EndInOrder().IgnoreError();  // or the job's images are gone, and their keeper
}

StatusOr<Endpoint> Job::StartScheduler(const std::string& meeting, const Endpoint& endpoint) {
  SchedulerOptions options;
  options.meeting = meeting;
  options.endpoint = endpoint;
  options.secret = secret_;
  options.tls = tls_;
  options.workers = size();
  options.timeout = absl::Seconds(identity_.meeting_timeout_s);
  options.progress = [](const std::string&) {};  // the ranks say it
  options.warn = Say;
  options.differing_ends = true;
  options.id_name = RankVariable(identity_.source);
  options.heartbeat_limit = options.own_heartbeat_limit = options_.heartbeat_limit;
  options.who = absl::StrCat("pid ", getpid(), ", host ", HostName());
  options.rank = 0;
  options.on_cause = [this](const Status& why) {
    if (SharesConsole()) SayCause(why);
  };
  auto scheduler = Scheduler::Start(options);
  if (!scheduler.ok()) return Annotate(scheduler.status(), ToString(endpoint));
  scheduler_ = std::move(*scheduler);
  scheduling_ = scheduler_.get();
  return scheduler_->endpoint();
}

Status Job::AwaitNameOf(const Endpoint& scheduler) {
  return AwaitName(scheduler, MonotonicNow() + absl::Seconds(identity_.meeting_timeout_s),
                   SaysThatItWaits() ? Say : std::function<void(const std::string&)>());
}

bool Job::Speaks() const { return !SharesConsole() || (identity_.rank == 0 && identity_.source != Source::kLauncher); }

// Where rank 0 is to run the scheduler and does not come, rank 1 says so for the others of its console.
bool Job::SaysThatItWaits() const { return Speaks() || (identity_.rank == 1 && identity_.source != Source::kLauncher); }

Status Job::Meet() {
  if (!joined_) RETURN_IF_ERROR(OpenNetwork());
  if (Alone() || membership_ != nullptr || identity_.source == Source::kMpi) return absl::OkStatus();
  const bool gathered = identity_.source == Source::kLauncher || identity_.source == Source::kCluster;
  const bool schedules = !gathered && identity_.rank == 0;
  const std::string node_id = identity_.source == Source::kCluster ? identity_.node_id : absl::StrCat(identity_.rank);
  if (identity_.source == Source::kLauncher) return MeetAt(identity_.meeting, node_id);
  if (identity_.one_host) {
    const std::string name = MeetingName(identity_.meeting);
    if (schedules) RETURN_IF_ERROR(StartScheduler(name, identity_.meeting).status());
    ASSIGN_OR_RETURN(const std::string folder, MeetingPath(name));
    return MeetAt({MeetingSocket(folder), 0}, node_id);
  }
  RETURN_IF_ERROR(CheckNetwork(network_, identity_.meeting.host));
  if (schedules && !identity_.secret_file.empty()) {
    ASSIGN_OR_RETURN(secret_, MakeGivenSecret(identity_.secret_file));
  } else if (tls_ == nullptr || !identity_.secret_file.empty()) {
    ASSIGN_OR_RETURN(secret_, AwaitSecret(identity_, identity_.meeting, tls_ != nullptr));
  }
  if (schedules) {
    RETURN_IF_ERROR(AwaitNameOf(identity_.meeting));
    RETURN_IF_ERROR(StartScheduler("", identity_.meeting).status());
  }
  return MeetAt(identity_.meeting, node_id);
}

Status Job::MeetAt(const Endpoint& scheduler, const std::string& node_id) {
  JoinOptions join;
  meets_ = true;
  const bool local = absl::StartsWith(scheduler.host, "/");
  if (!local) {
    RETURN_IF_ERROR(AwaitNameOf(scheduler));
    const std::string& interface = Interface();
    ASSIGN_OR_RETURN(const std::string address,
                     interface.empty() ? AddressTowards(scheduler) : InterfaceAddress(interface));
    ASSIGN_OR_RETURN(listener_, ListenTcp({address, 0}));
    ASSIGN_OR_RETURN(join.self.endpoint, LocalEndpoint(listener_));
    join.secret = secret_;
    join.tls = tls_;
  } else if (identity_.source != Source::kLauncher && identity_.source != Source::kMpi) {
    join.where =
        absl::StrCat(ToString(identity_.meeting), " (", scheduler.host,
                     ", for processes of this user that share the folder: not from another container, nor with "
                     "another XDG_RUNTIME_DIR or TMPDIR)");
  }
  join.scheduler = scheduler;
  join.node_id = node_id;
  join.self.host = HostKey();
  join.who = absl::StrCat("pid ", getpid(), ", host ", HostName());
  join.hashes = options_.shared;
  if (identity_.source == Source::kCluster) join.hashes.merge(SharedWithScheduler(identity_));
  if (identity_.source == Source::kTorchrun) join.hashes["WORLD_SIZE"] = absl::StrCat(identity_.size);
  // Ranks that meet through a socket hand each other memory through it.
  if (local) join.hashes["host (boot, network and mount namespaces, user)"] = HostKey();
  join.timeout = absl::Seconds(identity_.meeting_timeout_s);
  if (Speaks()) join.log = Say;
  if (SaysThatItWaits()) join.waiting = Say;
  join.on_over = [this](const Status& why) { OnOver(why); };
  join.on_stop = options_.on_stop;
  join.recover = StartsItself();
  join.epoch = identity_.epoch;
  if (join.recover && !identity_.recovery_disk) join.turn = [this] { return NewestTurn(); };
  std::unique_ptr<StoppedRankWatch> watch;  // the launcher looks itself, and under mpirun there is one already
  // Where the job starts again its scheduler decides what becomes of one that does not answer.
  const bool looks = identity_.source != Source::kLauncher && identity_.source != Source::kMpi && !join.recover;
  if (looks) watch = WatchStopped();
  auto membership = Membership::Join(join);
  watch.reset();
  if (absl::IsCancelled(membership.status())) {
    Say(std::string(membership.status().message()));
    _exit(kExitOk);
  }
  if (!membership.ok()) return membership.status();
  {
    std::lock_guard<std::mutex> lock(mutex_);
    membership_ = std::move(*membership);
    rank_ = met_as_ = membership_->rank();
    size_ = membership_->size();
    epoch_ = membership_->epoch();
    job_ = membership_->job();
    met_ = true;
  }
  changed_.notify_all();
  hosts_.clear();
  for (const RankAddress& peer : membership_->peers()) hosts_.push_back(peer.host);
  return absl::OkStatus();
}

StatusOr<std::unique_ptr<Communicator>> Job::Join(const std::string& backend) {
  const std::string choice = !backend.empty()                   ? backend
                             : joined_                          ? backend_->name
                             : identity_.source == Source::kMpi ? kMpirunBackend
                                                                : kDefaultBackend;
  ASSIGN_OR_RETURN(const BackendDef* const chosen, FindBackend(choice));
  if (joined_ && chosen != backend_) {
    return absl::InvalidArgumentError(
        absl::StrCat("the ranks are joined by the back end ", backend_->name, " already, not ", choice));
  }
  if (joined_) return std::unique_ptr<Communicator>();
  if (identity_.scheduler) {
    const int code = RunScheduler(identity_, options_.heartbeat_limit, network_);
    std::fflush(stdout);
    _exit(code);
  }
  if (!chosen->device.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the back end ", choice, " connects devices (", chosen->device, "), not ranks of the host"));
  }
  if (!chosen->launcher.empty() && identity_.source != Source::kMpi) {
    return absl::FailedPreconditionError(absl::StrCat("the back end ", choice, " needs ranks that ", chosen->launcher,
                                                      " started (", chosen->launcher, " -n N mslua ...); this is ",
                                                      identity_.Line()));
  }
  std::unique_ptr<Communicator> world;
  // Its scheduler says how many ranks there are.
  if (StartsItself()) RETURN_IF_ERROR(Meet());
  if (size() > 1) {
    if (identity_.source == Source::kMpi) {
      ASSIGN_OR_RETURN(world, JoinUnderMpirun(*chosen));
    } else {
      RETURN_IF_ERROR(Meet());
      RETURN_IF_ERROR(
          membership_->Compare("ms.communication.init", choice, absl::Seconds(identity_.meeting_timeout_s)));
      ASSIGN_OR_RETURN(world, Connect(*chosen));
    }
  } else {
    RETURN_IF_ERROR(Meet());  // a cluster's scheduler waits for its one worker too
    hosts_ = {HostKey()};
    rank_ = 0;
  }
  backend_ = chosen;
  joined_ = true;
  one_host_ = OnOneHost();
  if (size() > 1) SayWhere();
  return world;
}

bool Job::OnOneHost() const {
  return std::all_of(hosts_.begin(), hosts_.end(), [this](const auto& h) { return h == hosts_[0]; });
}

StatusOr<std::unique_ptr<Communicator>> Job::JoinUnderMpirun(const BackendDef& chosen) {
  RETURN_IF_ERROR(OpenNetwork());
  const std::unique_ptr<StoppedRankWatch> watch = WatchStopped();
  // mpirun connects its ranks by its own backend; those that choose another one meet through that.
  const bool own = !chosen.launcher.empty();
  ASSIGN_OR_RETURN(const BackendDef* const first, FindBackend(own ? chosen.name : std::string(kMpirunBackend)));
  ConnectOptions options;
  options.interface = Interface();
  options.timeout =
      options_.hang_limit > absl::ZeroDuration() ? options_.hang_limit : absl::Seconds(identity_.meeting_timeout_s);
  options.stuck = [this](const Status& why) { OnStuck(why); };
  ASSIGN_OR_RETURN(std::unique_ptr<Communicator> world, first->make(options));
  rank_ = world->rank();
  const Card mine = CardOf(HostKey());
  std::vector<Card> all(size());
  RETURN_IF_ERROR(world->Run(Call::AllGather(DType::kU8, mine.data(), all.data(), mine.size())
                                 .At("ms.communication.init")
                                 .Within(absl::Seconds(identity_.meeting_timeout_s))));
  hosts_.clear();
  for (const Card& card : all) hosts_.emplace_back(card.data());
  if (tls_ != nullptr && !chosen.encrypts && !OnOneHost()) return NotEncrypted(chosen);
  RETURN_IF_ERROR(MeetThrough(*world, !own));
  if (own) return world;
  meeting_ = std::move(world);
  return Connect(chosen);
}

StatusOr<std::string> Job::CommonAddressOf(Communicator& world) const {
  using Text = std::array<char, 2048>;
  Text mine = {};
  const auto own = OwnAddresses();
  if (own.ok()) absl::StrJoin(*own, ",").copy(mine.data(), mine.size() - 1);
  std::vector<Text> all(static_cast<size_t>(size()));
  RETURN_IF_ERROR(
      world.Run(Call::AllGather(DType::kU8, mine.data(), all.data(), mine.size()).At("ms.communication.init")));
  if (const std::string& interface = Interface(); !interface.empty()) return InterfaceAddress(interface);
  if (rank_ != 0) return std::string();
  RETURN_IF_ERROR(own.status());
  std::vector<std::vector<std::string>> others;
  for (size_t r = 0; r < all.size(); ++r) {
    if (hosts_[r] != hosts_[static_cast<size_t>(rank_)]) others.push_back(absl::StrSplit(all[r].data(), ','));
  }
  return CommonAddress(*own, others);
}

Status Job::MeetThrough(Communicator& world, bool needed) {
  std::string address;
  if (!OnOneHost()) {
    const Status allowed = CheckNetwork(network_, HostName());
    // Open MPI has connected the ranks; a scheduler beside it would only see sooner who has died.
    if (!allowed.ok()) return needed ? allowed : absl::OkStatus();
    ASSIGN_OR_RETURN(address, CommonAddressOf(world));
    if (!identity_.secret_file.empty() && rank_ == 0) {
      ASSIGN_OR_RETURN(secret_, MakeGivenSecret(identity_.secret_file));
    }
  }
  // Without a file of the user's, the job's secret is as safe as Open MPI's own connections, which carry it.
  Card where = {}, secret = {};
  if (rank_ == 0) {
    std::string meeting;
    if (OnOneHost()) {
      ASSIGN_OR_RETURN(meeting, NewMeetingName());
    } else if (secret_.empty()) {
      ASSIGN_OR_RETURN(secret_, NewJobSecret());
      secret = CardOf(secret_);
    }
    ASSIGN_OR_RETURN(const Endpoint endpoint, StartScheduler(meeting, {address, 0}));
    where = CardOf(ToString(endpoint));
  }
  for (Card* card : {&where, &secret}) {
    RETURN_IF_ERROR(world.Run(Call::Broadcast(DType::kU8, card->data(), card->size(), 0).At("ms.communication.init")));
  }
  ASSIGN_OR_RETURN(const Endpoint endpoint, ParseEndpoint(where.data()));
  if (!OnOneHost() && rank_ != 0) {
    secret_ = secret.data();
    if (secret_.empty()) {
      ASSIGN_OR_RETURN(secret_, AwaitSecret(identity_, endpoint, tls_ != nullptr));
    }
  }
  return MeetAt(endpoint, absl::StrCat(rank_));
}

StatusOr<std::unique_ptr<Communicator>> Job::Connect(const BackendDef& chosen) {
  if (tls_ != nullptr && !chosen.encrypts && !OnOneHost()) return NotEncrypted(chosen);
  ConnectOptions options;
  options.rank = rank_;
  options.size = size();
  options.peers = membership_->peers();
  if (listener_) options.listener = &listener_;
  options.job = membership_->job();
  options.secret = secret_;
  options.tls = tls_;
  options.interface = Interface();
  options.log = Say;
  options.stuck = [this](const Status& why) { OnStuck(why); };
  ASSIGN_OR_RETURN(options.folder, MakeHeldFolder(options.job));
  auto world = chosen.make(options);
  // The sockets have no names any more; the last rank of the host takes the folder away.
  rmdir(options.folder.c_str());
  ReleaseFolder(options.folder);
  listener_.Close();
  return world;
}

void Job::SayWhere() const {
  if (SharesConsole() && rank_ != 0) return;
  for (const std::string& notice : identity_.notices) Say(notice);
  std::vector<std::string> hosts = hosts_;
  std::sort(hosts.begin(), hosts.end());
  const auto count = std::unique(hosts.begin(), hosts.end()) - hosts.begin();
  Identity me = identity_;
  me.rank = rank_;
  me.size = size_;
  Say(absl::StrCat(me.Line(), ", ", backend_->name, ", ", count, count == 1 ? " host, " : " hosts, ", ComputeThreads(),
                   ComputeThreads() == 1 ? " thread" : " threads", " a rank"));
  if (count < 2 || !backend_->encrypts) return;
  Say(EncryptionLine(tls_ != nullptr));
}

std::unique_ptr<StoppedRankWatch> Job::WatchStopped() {
  // Who runs the scheduler tells the others.
  const bool first = identity_.source != Source::kCluster && identity_.rank == 0;
  const absl::Duration earlier = absl::Milliseconds(first ? 1000 : 500);
  return std::make_unique<StoppedRankWatch>(OwnEnvironment(), options_.heartbeat_limit - earlier,
                                            [this](const Status& why) { OnStopped(why); });
}

// On the watch's thread.
void Job::OnStopped(const Status& why) {
  if (Scheduler* scheduler = scheduling_) {
    scheduler->Fail(why);
    // The main thread hears of it as a member, unless it is in Open MPI.
    if (identity_.source != Source::kMpi) return;
    absl::SleepFor(kGoodbye);
  } else {
    SayCause(why);
  }
  KeepImages();
  _exit(CauseOf(why).exit_code);
}

// On a thread of the backend's.
void Job::OnStuck(const Status& why) {
  const Status cause =
      WithCause(absl::DeadlineExceededError(absl::StrCat(Name(), ": ", why.message())), {rank(), kExitHang});
  if (membership_ != nullptr) membership_->Abort(why, kExitHang);
  SayCause(cause);
  KeepImages();
  _exit(kExitHang);
}

void Job::SayCause(const Status& why) const {
  const std::string text =
      absl::StrCat("mslua: error[", CauseOf(why).exit_code, "] ", PrintableMessage(why.message()), "\n");
  // No stdio: another thread may hold its lock.
  if (write(2, text.data(), text.size()) < 0) return;
}

// On the membership's thread, which may be here before MeetAt has taken over what the scheduler said.
void Job::OnOver(const Status& why) {
  {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return met_; });
  }
  if (MayStartAgain(CauseOf(why).exit_code)) KeepImages();
  if (StartsAgain(why)) {
    const std::string text = absl::StrCat("mslua: ", PrintableMessage(why.message()), ": starting again\n");
    if (write(2, text.data(), text.size()) < 0) return;
    RemoveSocketFolder(job_);
    StartAnew(rank_, epoch_);
  }
  std::unique_lock<std::mutex> lock(mutex_);
  over_ = why;
  changed_.notify_all();
  if (changed_.wait_for(lock, absl::ToChronoNanoseconds(kGoodbye), [this] { return finished_; })) return;
  SayStopped(why);
  RemoveSocketFolder(job_);
  _exit(CauseOf(why).exit_code);
}

Status Job::AwaitOver(absl::Duration limit) {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait_for(lock, absl::ToChronoNanoseconds(limit), [this] { return !over_.ok(); });
  return over_;
}

namespace {

// Whether it is what other ranks have done that has stopped this one's collectives.
bool HasSuffered(Groups* groups) {
  const Status health = groups == nullptr ? absl::OkStatus() : groups->Health();
  return absl::IsAborted(health) || absl::IsUnavailable(health);
}

// "stopped because rank 1 failed (2)"
std::string StoppedBecause(const Status& why) {
  const Cause cause = CauseOf(why);
  const std::string who = cause.rank >= 0 ? absl::StrCat("rank ", cause.rank) : "the job";
  return absl::StrCat("stopped because ", who, " failed (", cause.exit_code, ")");
}

}  // namespace

Status Job::first_cause(Groups* groups) {
  if (membership_ == nullptr || !identity_.recovery.empty() || !HasSuffered(groups)) return absl::OkStatus();
  return AwaitOver(kFirstCause);
}

void Job::SayStopped(const Status& why) const {
  // On a console of all ranks stands the cause already, or the local launcher prints it, last; unless it is that the
  // scheduler is gone.
  const bool told = SharesConsole() && (membership_ == nullptr || !membership_->lost_scheduler());
  const std::string text =
      absl::StrCat("mslua: ", StoppedBecause(why), told ? "" : ": ", told ? "" : std::string(why.message()), "\n");
  // No stdio: another thread may hold its lock.
  if (write(2, text.data(), text.size()) < 0) return;
}

int64_t Job::epoch() const { return std::max<int64_t>(StartsItself() ? epoch_ : 1, identity_.restarts + 1); }

std::string Job::restart_cause() const {
  return StartsItself() && membership_ != nullptr ? membership_->cause() : identity_.restart_cause;
}

std::unique_ptr<CrashFile> Job::ReportCrashes(const std::string& path, const std::atomic<int64_t>* step) const {
  auto file = std::make_unique<CrashFile>(path, Name(), step);
  char folder[4096];
  const bool relative = !absl::StartsWith(path, "/");
  if (membership_ == nullptr || (relative && getcwd(folder, sizeof folder) == nullptr)) return file;
  membership_->TellCrashFile(relative ? absl::StrCat(folder, "/", path) : path);
  return file;
}

int64_t Job::NewestTurn() {
  const auto keeper = images();
  int64_t newest = Image::kNoTurn;
  if (!keeper.ok() || *keeper == nullptr) return newest;
  const auto look = [&](const Fd& memory) {
    const auto image = memory ? Image::Open(memory.get()) : StatusOr<std::unique_ptr<Image>>(absl::NotFoundError(""));
    if (image.ok()) newest = std::max(newest, (*image)->committed());
  };
  if (const int own = met_as_; own >= 0) {
    look((*keeper)->GetOwn(NewestImageOf(own)));  // a heartbeat does not wait for another process
    return newest;
  }
  // Before it has met the others a worker does not know which of the images was its own.
  const auto all = (*keeper)->List(kNewestImages);
  if (!all.ok()) return newest;
  for (const ImageKeeper::Kept& k : *all) look(k.memory);
  return newest;
}

namespace {

// What a worker leaves in MS_RECOVERY_PATH when it is done, for a scheduler that was killed before it heard so.
std::string DoneFile(const std::string& folder, int rank) { return absl::StrCat(folder, "/done.", rank); }

Status NoteDone(const std::string& folder, int rank, int exit_code) {
  RETURN_IF_ERROR(MakeFolders(folder));
  return WriteFileAtomically(DoneFile(folder, rank), absl::StrCat(exit_code, "\n"));
}

// The exit code of a job that is done; nothing while it is not. The workers end together, when all have done their
// work: one that says so speaks for all.
absl::optional<int> DoneCode(const std::string& folder, int workers) {
  absl::optional<int> code;
  for (int rank = 0; rank < workers; ++rank) {
    const auto text = ReadFile(DoneFile(folder, rank), 16);
    int own = kExitOk;
    if (!text.ok() || !absl::SimpleAtoi(*text, &own)) continue;
    if (!code || *code == kExitOk) code = own;
  }
  return code;
}

void ForgetDone(const std::string& folder, int workers) {
  for (int rank = 0;; ++rank) {
    // A job may have had more.
    if (unlink(DoneFile(folder, rank).c_str()) != 0 && rank >= workers) return;
  }
}

}  // namespace

int Job::Finish(const Status& outcome_of_work, int exit_code, Groups* groups) {
  Status outcome = outcome_of_work;
  if (outcome.ok() && groups != nullptr) {
    const std::string where = absl::StrCat("the end of ", options_.what);
    outcome = groups->world().Run(Call::Barrier().At(where).Within(kEndLimit));
    // MPI_Finalize waits for all ranks: while they are watched.
    if (outcome.ok()) groups->world().Close();
  }
  // A rank that has failed before it met the others meets them now: the launcher learns the cause, and prints it once.
  if (!outcome.ok() && !meets_ && identity_.source == Source::kLauncher)
    MeetAt(identity_.meeting, absl::StrCat(identity_.rank)).IgnoreError();
  Status over;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    finished_ = true;
    over = over_;
  }
  changed_.notify_all();
  return outcome.ok() ? LeaveDone(exit_code) : LeaveFailed(std::move(outcome), exit_code, groups, std::move(over));
}

int Job::LeaveDone(int exit_code) {
  if (!identity_.recovery_path.empty()) {
    if (membership_ != nullptr) membership_->EndsWithoutScheduler();
    const Status noted = NoteDone(identity_.recovery_path, rank_, exit_code);
    if (!noted.ok()) Say(absl::StrCat("warning: ", noted.message()));
  }
  Status end;
  if (membership_ != nullptr) membership_->Leave(exit_code);
  // A rank that dies before all have left starts the job again, from the images.
  if (membership_ != nullptr && images_ != nullptr) end = membership_->AwaitEnd(kLastLeave);
  // A job that was asked to stop, and has saved, continues later.
  if (images_ != nullptr && end.ok() && exit_code != kExitCheckpointed) images_->DropOwn().IgnoreError();
  membership_.reset();
  const Status others = scheduler_ == nullptr ? absl::OkStatus() : scheduler_->Wait();
  if (others.ok()) return exit_code;
  SayStopped(others);
  return CauseOf(others).exit_code;
}

int Job::LeaveFailed(Status outcome, int exit_code, Groups* groups, Status over) {
  // The ranks did not meet, and it is known who is to blame.
  if (membership_ == nullptr && HasCause(outcome)) exit_code = CauseOf(outcome).exit_code;
  // Errors of collectives begin with the rank, which Name() says in full.
  absl::string_view text = outcome.message();
  if (absl::ConsumePrefix(&text, absl::StrCat("rank ", rank_, "/", size(), ": "))) {
    outcome = Status(outcome.code(), text);
  }
  const Status health = groups == nullptr ? absl::OkStatus() : groups->Health();
  if (absl::IsFailedPrecondition(health) || absl::IsDeadlineExceeded(health)) exit_code = kExitHang;
  // What other ranks have done to this one is not the first cause.
  const bool suffered = HasSuffered(groups);
  // Ranks that do not come together have lost one that they had met.
  const bool apart = groups == nullptr && membership_ != nullptr && !identity_.recovery.empty() &&
                     (absl::IsUnavailable(outcome) || absl::IsAborted(outcome) || absl::IsDeadlineExceeded(outcome));
  if (suffered || apart) exit_code = kExitRankCrashed;
  if (MayStartAgain(exit_code)) KeepImages();
  if (over.ok() && suffered && membership_ != nullptr) over = AwaitOver(kFirstCause);
  if (StartsItself() && MayStartAgain(exit_code) && over.ok() && membership_ != nullptr) {
    // The scheduler says whether the job starts again: to the thread that then starts this process again. Without a
    // scheduler it is waited for by a process that has started again.
    membership_->Abort(outcome, exit_code);
    over = AwaitOver(kFirstCause);
    if (over.ok()) StartAnew(rank_, epoch_);
  }
  const auto others_fault = [&] { return !over.ok() && CauseOf(over).rank != rank_; };
  // The console may be gone before anyone has read it.
  if (!log_path_.empty()) {
    std::ofstream log(log_path_, std::ios::app);
    if (others_fault())
      log << "mslua: " << StoppedBecause(over) << ": " << over.message() << "\n";
    else
      log << "mslua: error[" << exit_code << "] " << Name() << ": " << outcome.message() << "\n";
  }
  if (over.ok() && membership_ != nullptr) {
    membership_->Abort(outcome, exit_code);
    // Whose failure came first; or the job continues on another number of ranks, and this process starts again.
    over = AwaitOver(StartsItself() ? kFirstCause : kGoodbye);
  }
  RemoveSocketFolder(job_);
  if (others_fault()) SayStopped(over);
  const bool lost = membership_ != nullptr && membership_->lost_scheduler();
  membership_.reset();
  if (scheduler_ != nullptr) scheduler_->Wait().IgnoreError();
  if (others_fault()) return CauseOf(over).exit_code;
  // The scheduler has said it to the console of all ranks before anyone heard of it.
  if (over.ok() || lost || !SharesConsole()) {
    Say(absl::StrCat("error[", exit_code, "] ", rank_ < 0 ? "" : absl::StrCat(Name(), ": "), outcome.message()));
  }
  return exit_code;
}

namespace {

// A port that stands for a scheduler of this host; nothing listens at it.
uint16_t RandomPort() {
  std::random_device random;
  return static_cast<uint16_t>(20000 + random() % 40000);
}

// `*at`: where it is, for people. `*secret`: the folder with the job's secret, if the scheduler had to make one.
StatusOr<std::unique_ptr<Scheduler>> StartFor(const Identity& identity, const NetworkOptions& network,
                                              SchedulerOptions options, Endpoint* at,
                                              std::unique_ptr<MeetingFolder>* secret) {
  ASSIGN_OR_RETURN(options.tls, LoadTls(network, Say));
  options.endpoint = identity.meeting;
  options.workers = identity.size;
  options.timeout = absl::Seconds(identity.meeting_timeout_s);
  options.log = Say;
  *at = identity.meeting;
  if (identity.one_host) {
    constexpr int kTries = 20;
    for (int i = 0;; ++i) {
      if (identity.meeting.port == 0) at->port = RandomPort();
      options.meeting = MeetingName(*at);
      auto scheduler = Scheduler::Start(options);
      if (identity.meeting.port == 0 && absl::IsAlreadyExists(scheduler.status()) && i < kTries) continue;
      if (!scheduler.ok()) return Annotate(scheduler.status(), ToString(*at));
      return scheduler;
    }
  }
  RETURN_IF_ERROR(CheckNetwork(network, identity.meeting.host));
  RETURN_IF_ERROR(AwaitName(identity.meeting, MonotonicNow() + options.timeout, Say));
  if (!identity.secret_file.empty()) {
    ASSIGN_OR_RETURN(options.secret, MakeGivenSecret(identity.secret_file));
  } else if (options.tls == nullptr) {
    ASSIGN_OR_RETURN(options.secret, NewJobSecret());
  }
  ASSIGN_OR_RETURN(auto scheduler, Scheduler::Start(options));
  *at = scheduler->endpoint();
  if (!identity.secret_file.empty() || options.tls != nullptr) return scheduler;
  const Endpoint named = {identity.meeting.host, at->port};
  ASSIGN_OR_RETURN(*secret, MeetingFolder::Make(MeetingName(named)));
  ASSIGN_OR_RETURN(const std::string file, DefaultSecretFile(named));
  RETURN_IF_ERROR(WriteJobSecret(file, options.secret));
  Say(absl::StrCat("the job's secret is in ", file, ": workers of this host find it there; on other hosts set ",
                   kJobSecretVariable, " to a copy of it (mode 600)"));
  return scheduler;
}

int SayError(const Status& status, int code) {
  Say(absl::StrCat("error[", code, "] ", status.message()));
  return code;
}

// Blocks the signals that ask to stop, so that only the descriptor takes them. Before there are threads.
Fd TakeStopSignals() {
  const sigset_t set = StopSignals();
  sigprocmask(SIG_BLOCK, &set, nullptr);
  return Fd(signalfd(-1, &set, SFD_CLOEXEC));
}

std::string JournalOf(const Identity& identity) { return absl::StrCat(identity.recovery_path, "/scheduler.json"); }

int MostRanks(const Identity& identity) { return std::max(identity.size, identity.most); }

// Nothing is remembered of a job that is over.
void ForgetJob(const Identity& identity) {
  if (identity.recovery_path.empty()) return;
  unlink(JournalOf(identity).c_str());
  ForgetDone(identity.recovery_path, MostRanks(identity));
}

// What a scheduler that is started again continues. Gives whether it is.
StatusOr<bool> ContinueJob(const Identity& identity, SchedulerOptions* options) {
  if (identity.recovery_path.empty()) return false;
  const std::string path = JournalOf(identity);
  ASSIGN_OR_RETURN(const JobEpoch before, ReadJournal(path));
  options->recover = true;
  options->epoch = before.number + 1;
  options->size = before.size;
  options->least = identity.least > 0 ? identity.least : before.least;
  options->most = identity.least > 0 ? identity.most : before.most;
  const int least = identity.least > 0 ? identity.least : identity.size, most = MostRanks(identity);
  if (before.number > 0 && before.size > 0 && (before.size < least || before.size > most)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the job in ", identity.recovery_path, " ran with ", before.size, " workers, and MS_WORKER_NUM is ",
        identity.size, ": start it with ", before.size, ", or use another MS_RECOVERY_PATH, or remove ", path));
  }
  options->spares = identity.spares;
  options->replace_after = absl::Seconds(identity.replace_after_s);
  options->on_epoch = [path](const JobEpoch& epoch) { return WriteJournal(path, epoch); };
  if (before.number > 0)
    Say(absl::StrCat("the scheduler was started again: epoch ", before.number + 1));
  else
    ForgetDone(identity.recovery_path, MostRanks(identity));
  return before.number > 0;
}

// The environment of the job's workers, as they were told.
Environment WorkersEnvironment(const Identity& here) {
  Environment environment = OwnEnvironment();
  environment["MS_ROLE"] = "MS_SCHED";
  environment["MS_SCHED_HOST"] = here.meeting.host;
  environment["MS_SCHED_PORT"] = absl::StrCat(here.meeting.port);
  environment["MS_WORKER_NUM"] = absl::StrCat(here.size);
  return environment;
}

// The `count`-th signal that asks to stop.
void OnStopSignal(Scheduler& scheduler, int signal, int count) {
  if (count == 1) {
    Say("the workers stop at the end of their step; once more to stop at once");
    scheduler.Stop(signal);
    return;
  }
  const std::string what =
      absl::StrCat("the scheduler was stopped by a second signal, ", signal, " (", strsignal(signal), ")");
  scheduler.Fail(WithCause(absl::CancelledError(what), {-1, kExitInterrupted}));
}

// Where the workers have ended while there was no scheduler nobody comes: the exit code of the job that is done.
absl::optional<int> EndWithoutWorkers(Scheduler& scheduler, const Identity& identity) {
  const auto code = DoneCode(identity.recovery_path, MostRanks(identity));
  if (!code) return absl::nullopt;
  scheduler.Fail(WithCause(absl::CancelledError("the job is done"), {-1, kExitOk}));
  scheduler.Wait().IgnoreError();
  ForgetJob(identity);
  Say("all workers are done: the job is over");
  return *code;
}

int ExitCodeOfStart(const Status& status) {
  if (absl::IsPermissionDenied(status)) return kExitSecurity;
  const ExitCode said = ExitCodeIn(status);
  return said != kExitOk ? said : kExitEnvironment;
}

}  // namespace

int RunScheduler(const Identity& identity, absl::Duration heartbeat_limit, const NetworkOptions& given) {
  NetworkOptions network = given;
  if (network.tls_file.empty()) network.tls_file = identity.tls_file;
  const Fd signals = TakeStopSignals();
  std::unique_ptr<MeetingFolder> secret;
  Identity here = identity;
  const Fd over(eventfd(0, EFD_CLOEXEC));
  SchedulerOptions options;
  options.heartbeat_limit = options.own_heartbeat_limit = heartbeat_limit;
  options.who = absl::StrCat("pid ", getpid(), ", host ", HostName());
  options.shared = SharedWithScheduler(identity);
  options.on_over = [&over] {
    const uint64_t one = 1;
    if (write(over.get(), &one, sizeof one) < 0) return;  // full: it is set
  };
  const StatusOr<bool> again = ContinueJob(identity, &options);
  if (!again.ok()) return SayError(again.status(), kExitStorage);
  const auto started = StartFor(identity, network, std::move(options), &here.meeting, &secret);
  if (!started.ok()) return SayError(started.status(), ExitCodeOfStart(started.status()));
  Scheduler& scheduler = **started;
  Say(here.Line());
  if (!identity.one_host) Say(EncryptionLine(!network.tls_file.empty()));
  for (const std::string& notice : identity.notices) Say(notice);
  const absl::Duration limit = heartbeat_limit - absl::Seconds(1);  // before the workers see it
  const bool recovers = !identity.recovery_path.empty();
  const auto on_stopped = [&scheduler, recovers](const Status& why) {
    if (scheduler.built()) return;
    // Another worker may come in its place.
    if (recovers) return Say(absl::StrCat("warning: ", why.message()));
    scheduler.Fail(why);
  };
  auto watch = std::make_unique<StoppedRankWatch>(WorkersEnvironment(here), limit, on_stopped);
  int asked = 0;
  for (bool ended = false; !ended;) {
    if (scheduler.built()) watch = nullptr;
    pollfd entries[] = {{over.get(), POLLIN, 0}, {signals.get(), POLLIN, 0}};
    poll(entries, 2, watch == nullptr ? -1 : 1000);
    ended = entries[0].revents != 0;
    if (*again && watch != nullptr) {
      if (const auto code = EndWithoutWorkers(scheduler, identity)) return *code;
    }
    signalfd_siginfo info;
    if (entries[1].revents == 0 || read(signals.get(), &info, sizeof info) != sizeof info) continue;
    // A terminal that closes and its shell send one each.
    if (info.ssi_signo == SIGHUP && asked > 0) continue;
    OnStopSignal(scheduler, static_cast<int>(info.ssi_signo), ++asked);
  }
  const Status outcome = scheduler.Wait();
  ForgetJob(identity);
  if (outcome.ok()) return scheduler.exit_code();
  const int code = CauseOf(outcome).exit_code;
  // A worker that a signal has ended before it could save has not failed.
  return asked > 0 && code == kExitRankCrashed ? kExitInterrupted : code;
}

}  // namespace mslua
