// Who am I: which rank of how many this process is, from its environment. A pure function.
//
// First match wins: the local launcher (MSLUA_RANK), a dynamic cluster (MS_ROLE), a rank table (RANK_TABLE_FILE),
// Open MPI (OMPI_COMM_WORLD_RANK), srun (SLURM_PROCID in a step), torchrun (RANK and WORLD_SIZE), else a single rank.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "rendezvous/rank_table.h"
#include "rendezvous/socket.h"

namespace mslua {

using Environment = std::map<std::string, std::string>;

// What the local launcher tells its ranks: rank, ranks, the socket of its scheduler, its process.
inline constexpr char kLauncherRank[] = "MSLUA_RANK";
inline constexpr char kLauncherSize[] = "MSLUA_SIZE";
inline constexpr char kLauncherMeeting[] = "MSLUA_MEETING";
inline constexpr char kLauncherPid[] = "MSLUA_LAUNCHER";
// What starts a job again when a process of it has ended tells the ranks: the job's name at the keeper of its images,
// with ":disk" behind it where it resumes from checkpoints alone.
inline constexpr char kRecoveryJob[] = "MSLUA_RECOVERY";
inline constexpr char kRestarts[] = "MSLUA_RESTARTS";           // how often the job has started again
inline constexpr char kRestartCause[] = "MSLUA_RESTART_CAUSE";  // why, the last time
inline constexpr char kEpoch[] = "MSLUA_JOB_EPOCH";             // how often the workers have met before this process
// What the scheduler of a job that starts again may do without a worker: see SchedulerOptions.
inline constexpr char kSpares[] = "MSLUA_SPARES", kElastic[] = "MSLUA_ELASTIC",
                      kReplaceAfterVariable[] = "MSLUA_REPLACE_AFTER";
// Names the TLS configuration.
inline constexpr char kTlsVariable[] = "MSLUA_TLS";

struct Identity {
  enum class Source { kLauncher, kCluster, kRankTable, kMpi, kSlurm, kTorchrun, kSingle };
  Source source = Source::kSingle;
  bool scheduler = false;  // this process only gathers the workers: MS_ROLE=MS_SCHED
  int rank = 0;            // -1: the scheduler assigns it
  int size = 1;
  int local_rank = -1;  // on its host; -1: not known here
  int local_size = -1;
  int device_id = -1;  // DEVICE_ID or the table's
  // Where ranks meet: the scheduler of a cluster, else one that rank 0 runs. Port 0 and no host: nowhere (single, mpi).
  Endpoint meeting;
  // All ranks are on this host, as far as the start says: they meet through a unix socket that stands for `meeting`.
  bool one_host = false;
  std::string secret_file;           // MSLUA_JOB_SECRET_FILE; may be empty
  std::string tls_file;              // MSLUA_TLS: the TLS configuration; may be empty
  std::string node_id;               // MS_NODE_ID, of a cluster; may be empty
  std::string interface;             // NCCL_SOCKET_IFNAME: the address to announce
  double meeting_timeout_s = 600;    // MS_CLUSTER_TIMEOUT
  std::string recovery;              // the job's name where it is started again after a failure; empty: it is not
  bool recovery_disk = false;        // from checkpoints alone
  std::string recovery_path;         // MS_RECOVERY_PATH, of a cluster
  int restarts = 0;                  // how often the job has started again, where its starter says so
  std::string restart_cause;         // why, the last time
  int epoch = 0;                     // of a cluster: how often the workers had met; 0: this process knows of no time
  int spares = 0;                    // of a cluster: workers that wait for a place
  int least = 0, most = 0;           // numbers of ranks that the job may have; 0: `size` alone
  double replace_after_s = 30;       // how long a worker that has gone is waited for
  std::vector<std::string> notices;  // what was accepted and has no effect

  // "rank 3 of 8 (RANK_TABLE_FILE)": the line of start-up.
  std::string Line() const;
};

// Reads the rank table that the environment names, by `read_file` (path to contents).
// InvalidArgument: the first malformed or missing variable, with what was expected and what was given.
StatusOr<Identity> WhoAmI(const Environment& environment,
                          const std::function<StatusOr<std::string>(const std::string&)>& read_file);

// Reads "MIN:MAX", whole numbers, of --elastic and MSLUA_ELASTIC; false: `text` is no such thing.
bool ParseRankRange(const std::string& text, int64_t* least, int64_t* most);

// The variables of this process that say how it was started: an allow-list, for rank_<r>.env.
Environment LaunchVariables(const Environment& environment);

}  // namespace mslua
