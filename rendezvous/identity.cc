#include "rendezvous/identity.h"

#include <arpa/inet.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "core/base/hash.h"
#include "rendezvous/job_secret.h"
#include "rendezvous/local_meeting.h"

namespace mslua {
namespace {

constexpr int kDefaultPort = 6667;
constexpr int kMaxWorld = 65536;

bool IsAddress(const std::string& text) {
  unsigned char bytes[16];
  return inet_pton(AF_INET, text.c_str(), bytes) == 1 || inet_pton(AF_INET6, text.c_str(), bytes) == 1;
}

// Reads variables and remembers the first that is wrong.
class Reader {
 public:
  explicit Reader(const Environment& environment) : environment_(environment) {}

  bool Has(const std::string& name) const {
    const auto it = environment_.find(name);
    return it != environment_.end() && !it->second.empty();
  }
  absl::string_view View(const std::string& name) const {
    return Has(name) ? absl::string_view(environment_.at(name)) : absl::string_view();
  }
  std::string Text(const std::string& name, const std::string& otherwise = "") const {
    return Has(name) ? environment_.at(name) : otherwise;
  }
  std::string NeedText(const std::string& name, const std::string& expected) {
    if (!Has(name)) Fail(name, expected);
    return Text(name);
  }
  // A whole number in [low, high].
  int Need(const std::string& name, int low, int high) {
    const std::string expected = absl::StrCat("a whole number from ", low, " to ", high);
    int value = low;
    if (!Has(name)) {
      Fail(name, expected);
    } else if (!Digits(Text(name)) || !absl::SimpleAtoi(Text(name), &value) || value < low || value > high) {
      Fail(name, expected);
      value = low;
    }
    return value;
  }
  int Number(const std::string& name, int low, int high, int otherwise) {
    return Has(name) ? Need(name, low, high) : otherwise;
  }
  void Fail(const std::string& name, const std::string& expected) {
    if (!status_.ok()) return;
    const auto it = environment_.find(name);
    status_ = absl::InvalidArgumentError(
        absl::StrCat(name, ": expected ", expected, ", ",
                     it == environment_.end() ? "but it is not set" : absl::StrCat("got '", it->second, "'")));
  }
  void FailWith(const std::string& text) {
    if (status_.ok()) status_ = absl::InvalidArgumentError(text);
  }
  const Status& status() const { return status_; }

  // "+5", " 5" and "5.0" are not whole numbers here, nor node ids that are ranks.
  static bool Digits(const std::string& text) {
    return !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) { return c >= '0' && c <= '9'; });
  }

 private:
  const Environment& environment_;
  Status status_;
};

void RankAndSize(Reader& env, const char* rank, const char* size, Identity* id) {
  id->size = env.Need(size, 1, kMaxWorld);
  id->rank = env.Need(rank, 0, id->size - 1);
}

void LocalRankAndSize(Reader& env, const char* rank, const char* size, Identity* id) {
  id->local_size = env.Number(size, 1, id->size, -1);
  id->local_rank = env.Number(rank, 0, (id->local_size > 0 ? id->local_size : id->size) - 1, -1);
}

void Cluster(Reader& env, Identity* id) {
  id->source = Identity::Source::kCluster;
  const std::string role = env.Text("MS_ROLE");
  if (role == "MS_SCHED") {
    id->scheduler = true;
  } else if (role == "MS_PSERVER" || role == "MS_SERVER") {
    env.FailWith(absl::StrCat("MS_ROLE=", role,
                              ": there are no parameter servers here; start workers, MS_ROLE=MS_WORKER, "
                              "and one scheduler, MS_ROLE=MS_SCHED"));
  } else if (role != "MS_WORKER") {
    env.Fail("MS_ROLE", "MS_SCHED or MS_WORKER");
  }
  id->rank = -1;
  id->size = env.Need("MS_WORKER_NUM", 1, kMaxWorld);
  id->meeting.host = env.NeedText("MS_SCHED_HOST", "the scheduler's address");
  id->meeting.port = static_cast<uint16_t>(env.Need("MS_SCHED_PORT", id->scheduler ? 0 : 1, 65535));
  id->node_id = env.Text("MS_NODE_ID");
  if (id->node_id.size() > 128) env.Fail("MS_NODE_ID", "at most 128 characters");
  // Where a job starts again the scheduler says who has a place.
  const bool recovers = env.Number("MS_ENABLE_RECOVERY", 0, 1, 0) == 1;
  if (!Reader::Digits(id->node_id) || id->scheduler) return;
  id->rank = env.Need("MS_NODE_ID", 0, (recovers ? kMaxWorld : id->size) - 1);
  if (recovers) id->rank = -1;
}

Status FromTable(Reader& env, const std::function<StatusOr<std::string>(const std::string&)>& read_file, Identity* id) {
  id->source = Identity::Source::kRankTable;
  const std::string path = env.Text("RANK_TABLE_FILE");
  const auto json = read_file(path);
  if (!json.ok()) return Annotate(json.status(), "RANK_TABLE_FILE");
  const auto table = ParseRankTable(*json);
  if (!table.ok()) return Annotate(table.status(), absl::StrCat("RANK_TABLE_FILE=", path));
  id->size = static_cast<int>(table->ranks.size());
  id->rank = env.Need("RANK_ID", 0, id->size - 1);
  const RankTable::Device& device = table->ranks[id->rank];
  id->device_id = env.Number("DEVICE_ID", 0, kMaxWorld, device.device_id);
  if (env.Has("RANK_SIZE") && env.Need("RANK_SIZE", 1, kMaxWorld) != id->size) {
    env.Fail("RANK_SIZE", absl::StrCat(id->size, ", the number of ranks in the table"));
  }
  id->local_rank = id->local_size = 0;
  for (int r = 0; r < id->size; ++r) {
    if (table->ranks[r].server_id != device.server_id) continue;
    ++id->local_size;
    if (r < id->rank) ++id->local_rank;
  }
  // Ranks of one server meet there; others where rank 0 is, by its server's address (its device's, where that is a name
  // of the table's own: a device's network need not be one of the host's).
  const RankTable::Device& first = table->ranks[0];
  const std::string server = IsAddress(first.server_id) ? first.server_id : first.device_ip;
  id->meeting = {id->local_size == id->size ? "127.0.0.1" : server,
                 static_cast<uint16_t>(env.Number("MS_SCHED_PORT", 1, 65535, kDefaultPort))};
  return absl::OkStatus();
}

void Slurm(Reader& env, Identity* id) {
  id->source = Identity::Source::kSlurm;
  RankAndSize(env, "SLURM_PROCID", "SLURM_NTASKS", id);
  id->local_rank = env.Number("SLURM_LOCALID", 0, id->size - 1, -1);
  const bool one_host = env.Number("SLURM_NNODES", 1, kMaxWorld, 1) == 1;
  const std::string launch = env.Text("SLURM_LAUNCH_NODE_IPADDR", one_host ? "127.0.0.1" : "");
  id->meeting.host = env.Text("MASTER_ADDR", launch);
  if (id->meeting.host.empty()) env.Fail("MASTER_ADDR", "the address of the host of rank 0");
  // Jobs that share a host are to meet at different ports.
  const int job = env.Number("SLURM_JOB_ID", 0, 1 << 30, 0);
  id->meeting.port = static_cast<uint16_t>(env.Number("MASTER_PORT", 1, 65535, 20000 + job % 20000));
  id->one_host = env.Has("SLURM_NNODES") && one_host;
}

void Torchrun(Reader& env, Identity* id) {
  id->source = Identity::Source::kTorchrun;
  RankAndSize(env, "RANK", "WORLD_SIZE", id);
  LocalRankAndSize(env, "LOCAL_RANK", "LOCAL_WORLD_SIZE", id);
  if (id->size == 1) return;
  id->meeting.host = env.NeedText("MASTER_ADDR", "the address of the host of rank 0");
  id->meeting.port = static_cast<uint16_t>(env.Need("MASTER_PORT", 1, 65535));
}

// Variables of a start that lacks its first one: better said than taken for a single rank.
void Leftovers(Reader& env) {
  for (const char* name : {"MS_WORKER_NUM", "MS_SCHED_HOST"}) {
    if (env.Has(name)) env.FailWith(absl::StrCat(name, " is set but MS_ROLE is not: set it to MS_WORKER or MS_SCHED"));
  }
  if (env.Has("RANK_ID")) env.FailWith("RANK_ID is set but RANK_TABLE_FILE is not: name the rank table in it");
  if (env.Has("RANK") != env.Has("WORLD_SIZE")) {
    env.FailWith(env.Has("RANK") ? "RANK is set but WORLD_SIZE is not: set both or none"
                                 : "WORLD_SIZE is set but RANK is not: set both or none");
  }
}

// What may become of a job without some of its workers.
void Elasticity(Reader& env, Identity* id) {
  const std::pair<const char*, const char*> flags[] = {
      {"--spares", kSpares}, {"--elastic", kElastic}, {"--replace-after", kReplaceAfterVariable}};
  for (const auto& [flag, name] : flags) {
    if (env.Has(name) && id->recovery_path.empty())
      env.FailWith(absl::StrCat(flag, " (", name,
                                ") is for clusters that start again: set MS_ENABLE_RECOVERY=1 and MS_RECOVERY_PATH "
                                "for the scheduler and its workers"));
  }
  id->spares = env.Number(kSpares, 0, kMaxWorld, 0);
  id->replace_after_s = env.Number(kReplaceAfterVariable, 0, 1 << 20, 30);
  if (!env.Has(kElastic)) return;
  int64_t least = 0, most = 0;
  const bool whole = ParseRankRange(env.Text(kElastic), &least, &most);
  if (!whole || least < 1 || least > id->size || most < id->size || most > kMaxWorld)
    return env.Fail(kElastic,
                    absl::StrCat("MIN:MAX, whole numbers with 1 <= MIN <= ", id->size, " (MS_WORKER_NUM) <= MAX"));
  id->least = static_cast<int>(least);
  id->most = static_cast<int>(most);
}

// How the job continues when a process of it has ended.
void Recovery(Reader& env, Identity* id) {
  constexpr absl::string_view kDisk = ":disk";
  absl::string_view job = env.View(kRecoveryJob);
  id->recovery_disk = absl::ConsumeSuffix(&job, kDisk);
  id->recovery = std::string(job);
  const auto fits = [](char c) { return absl::ascii_isalnum(c) || c == '-'; };
  if (job.size() > 20 || !std::all_of(job.begin(), job.end(), fits))
    env.Fail(kRecoveryJob, "a name of at most 20 letters, digits and '-'");
  id->restarts = env.Number(kRestarts, 0, 1 << 30, 0);
  id->restart_cause = env.Text(kRestartCause);
  id->epoch = env.Number(kEpoch, 0, 1 << 30, 0);
  if (env.Number("MS_ENABLE_RECOVERY", 0, 1, 0) == 0) return;
  if (id->source != Identity::Source::kCluster) {
    return env.FailWith(
        "MS_ENABLE_RECOVERY=1 is for clusters of an MS_SCHED and its MS_WORKER processes: elsewhere use mslua train "
        "--recover, or mslua again -- mpirun ...");
  }
  id->recovery_path = env.NeedText("MS_RECOVERY_PATH", "the folder of what the scheduler and the workers remember");
  const std::string text = absl::StrCat(id->recovery_path, " ", ToString(id->meeting));
  id->recovery = absl::StrCat("cluster-", absl::Hex(Crc32c(text.data(), text.size()), absl::kZeroPad8));
}

}  // namespace

bool ParseRankRange(const std::string& text, int64_t* least, int64_t* most) {
  const std::pair<std::string, std::string> ends = absl::StrSplit(text, absl::MaxSplits(':', 1));
  return Reader::Digits(ends.first) && Reader::Digits(ends.second) && absl::SimpleAtoi(ends.first, least) &&
         absl::SimpleAtoi(ends.second, most);
}

std::string Identity::Line() const {
  static constexpr const char* kSources[] = {
      "mslua -n", "MS_ROLE", "RANK_TABLE_FILE", "Open MPI", "SLURM", "RANK and WORLD_SIZE", "no launcher"};
  const std::string from = absl::StrCat(" (", kSources[static_cast<int>(source)], ")");
  if (scheduler) return absl::StrCat("scheduler of ", size, " workers at ", ToString(meeting), from);
  if (rank < 0) return absl::StrCat("a worker of ", size, ", scheduler at ", ToString(meeting), from);
  return absl::StrCat("rank ", rank, " of ", size, from);
}

StatusOr<Identity> WhoAmI(const Environment& environment,
                          const std::function<StatusOr<std::string>(const std::string&)>& read_file) {
  Reader env(environment);
  Identity id;
  if (env.Has(kLauncherRank)) {
    id.source = Identity::Source::kLauncher;
    RankAndSize(env, kLauncherRank, kLauncherSize, &id);
    id.local_rank = id.rank;
    id.local_size = id.size;
    id.one_host = true;
    const auto meeting = ParseEndpoint(env.NeedText(kLauncherMeeting, "the path of the launcher's socket"));
    if (meeting.ok() && absl::StartsWith(meeting->host, "/")) {
      id.meeting = *meeting;
    } else {
      env.Fail(kLauncherMeeting, "the path of a socket");
    }
  } else if (env.Has("MS_ROLE")) {
    Cluster(env, &id);
  } else if (env.Has("RANK_TABLE_FILE")) {
    RETURN_IF_ERROR(FromTable(env, read_file, &id));
  } else if (env.Has("OMPI_COMM_WORLD_RANK")) {
    id.source = Identity::Source::kMpi;
    RankAndSize(env, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", &id);
    LocalRankAndSize(env, "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", &id);
  } else if (env.Has("SLURM_PROCID") && env.Has("SLURM_STEP_ID")) {  // a batch script has the first alone
    Slurm(env, &id);
  } else if (env.Has("RANK") && env.Has("WORLD_SIZE")) {
    Torchrun(env, &id);
  } else {
    Leftovers(env);
  }
  id.one_host = id.one_host || id.local_size == id.size || IsLoopback(id.meeting.host);
  id.secret_file = env.Text(kJobSecretVariable);
  id.tls_file = env.Text(kTlsVariable);
  if (id.device_id < 0) id.device_id = env.Number("DEVICE_ID", 0, kMaxWorld, -1);
  if (env.Has("MS_SERVER_NUM") && env.Need("MS_SERVER_NUM", 0, kMaxWorld) > 0) {
    id.notices.push_back("MS_SERVER_NUM: parameter servers have no part in training here");
  }
  id.interface = env.Text("NCCL_SOCKET_IFNAME");
  Recovery(env, &id);
  Elasticity(env, &id);
  id.meeting_timeout_s = env.Number("MS_CLUSTER_TIMEOUT", 1, 1 << 20, 600);
  RETURN_IF_ERROR(env.status());
  return id;
}

Environment LaunchVariables(const Environment& environment) {
  static constexpr const char* kNames[] = {kLauncherRank,
                                           kLauncherSize,
                                           kLauncherMeeting,
                                           kRecoveryJob,
                                           "RANK_TABLE_FILE",
                                           "RANK_ID",
                                           "RANK_SIZE",
                                           "DEVICE_ID",
                                           "RANK",
                                           "WORLD_SIZE",
                                           "LOCAL_RANK",
                                           "LOCAL_WORLD_SIZE",
                                           "MASTER_ADDR",
                                           "MASTER_PORT",
                                           "NCCL_SOCKET_IFNAME",
                                           kJobSecretVariable,
                                           kTlsVariable,
                                           "MS_ROLE",
                                           "MS_WORKER_NUM",
                                           "MS_SERVER_NUM",
                                           "MS_SCHED_HOST",
                                           "MS_SCHED_PORT",
                                           "MS_NODE_ID",
                                           "MS_ENABLE_RECOVERY",
                                           "MS_RECOVERY_PATH",
                                           "MS_CLUSTER_TIMEOUT",
                                           kSpares,
                                           kElastic,
                                           kReplaceAfterVariable,
                                           "OMPI_COMM_WORLD_RANK",
                                           "OMPI_COMM_WORLD_SIZE",
                                           "OMPI_COMM_WORLD_LOCAL_RANK",
                                           "OMPI_COMM_WORLD_LOCAL_SIZE",
                                           "SLURM_PROCID",
                                           "SLURM_NTASKS",
                                           "SLURM_LOCALID",
                                           "SLURM_NNODES",
                                           "SLURM_JOB_ID",
                                           "SLURM_STEP_ID",
                                           "OMP_NUM_THREADS",
                                           "OMP_WAIT_POLICY"};
  Environment some;
  for (const char* name : kNames) {
    const auto it = environment.find(name);
    if (it != environment.end()) some.insert(*it);
  }
  return some;
}

}  // namespace mslua
