// A rank's place in its job: from who it is (rendezvous/identity.h) to the world communicator, and the end of it all.
//
// Ranks meet through a scheduler (rendezvous/scheduler.h): the launcher's, the cluster's, or one that rank 0 runs.
// It compares what they run, watches that they live, and tells all of them why the job is over.
#pragma once

#include <signal.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "launch/crash_file.h"
#include "launch/image_keeper.h"
#include "launch/network.h"
#include "launch/shared_step.h"
#include "launch/stopped_ranks.h"
#include "rendezvous/heartbeat_timeout.h"
#include "rendezvous/identity.h"
#include "rendezvous/membership.h"
#include "rendezvous/scheduler.h"

namespace mslua {

struct BackendDef;
class Communicator;
class Groups;

struct JobOptions {
  Identity identity;
  std::string interface;                      // --iface; empty: the identity's
  NetworkOptions network;                     // --tls, --insecure-network; without a file: the identity's
  std::map<std::string, std::string> shared;  // what all ranks must share, by name ("recipe"): compared at the meeting
  std::string what = "the program";           // "train.lua", for messages
  // How long another rank, or the scheduler, may give no sign of life (--heartbeat-timeout).
  absl::Duration heartbeat_limit = kHeartbeatTimeout;
  // How long Open MPI may keep the ranks waiting for one that does not come (--hang-timeout); 0: as for a meeting.
  absl::Duration hang_limit;
  // Called, on another thread, when the scheduler asks this rank to stop as at a signal (SIGTERM, SIGINT).
  std::function<void(int signal)> on_stop;
};

// First thing in a rank that the local launcher started: it ends with the launcher.
void FollowLauncher();
// Sets what ThreadVariables says and this process was not given, and starts the program again, since OpenMP reads its
// variables when it is loaded. `arguments`: of the program, without its name.
void ShareCores(const Identity& identity, const std::vector<std::string>& arguments);

// The signals that ask a scheduler to stop: without SIGHUP where it is ignored, as under nohup.
sigset_t StopSignals();

// The signal that has asked this process to stop, 0: none. StartAnew hands it on to the program that it starts, which
// takes it once. A signal handler may call HandOnStop.
void HandOnStop(int signal);
int TakeHandedStop();

// Starts this process's program again in its place, as it was started: on any thread, whatever the others do. `rank`:
// its own, which a worker that was given no name keeps; -1: not known. `epoch`: how often the workers have met.
[[noreturn]] void StartAnew(int rank, int64_t epoch);

class Job {
 public:
  explicit Job(const JobOptions& options);
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  // Finds the other ranks' scheduler and is compared with them, but for a single rank and under mpirun. Meet is part
  // of Join; a launcher's rank does it at once, so that its end is known for what it is.
  Status Meet();
  // Meets the other ranks and connects to them by the backend of that name; empty: mpi under mpirun, else native.
  // Again: nothing, but InvalidArgument for another backend. A single rank has no world: null.
  StatusOr<std::unique_ptr<Communicator>> Join(const std::string& backend);
  bool joined() const { return joined_; }
  // With how few and how many ranks the job may continue, once they have met. The scheduler's own flag comes first,
  // then the command line, then the recipe. InvalidArgument: not numbers of ranks.
  Status AllowRanks(int64_t least, int64_t most, bool recipe);
  // What a script says with set_ps_context, before the ranks join; the command line comes first.
  void SetNetwork(const NetworkOptions& network);
  // Whether there is a TLS configuration, by the command line, the environment or a script.
  bool tls_given() const { return !network_.tls_file.empty(); }
  // Whether connections to other hosts are encrypted, or there are none.
  bool private_network() const { return tls_ != nullptr || one_host_; }

  // Whether the processes of the job stay when one has ended, and start again in place.
  bool StartsItself() const { return identity_.source == Identity::Source::kCluster && !identity_.recovery.empty(); }
  // Before the ranks have met: as far as the start says it, else 0.
  int rank() const { return std::max(0, rank_ < 0 ? identity_.rank : rank_); }
  // Of a job that may have other numbers of ranks: known when they have met.
  int size() const { return size_; }
  const Identity& identity() const { return identity_; }
  // How often the job's ranks have met, this time included, and why they meet again; empty: it is the first time, or
  // not known.
  int64_t epoch() const;
  std::string restart_cause() const;
  // Reports of a crash of this process go to `path` while what it gives lives, and who says that it has died names the
  // file. `step`: what is done.
  std::unique_ptr<CrashFile> ReportCrashes(const std::string& path, const std::atomic<int64_t>* step) const;
  // Whether nobody else has a part in this: a single rank, and no scheduler or launcher.
  bool Alone() const {
    const auto source = identity_.source;
    return size() == 1 && source != Identity::Source::kCluster && source != Identity::Source::kLauncher;
  }
  // Where the images of this job's trainings are kept; null: the job does not start again, or from checkpoints alone.
  // Any thread.
  StatusOr<ImageKeeper*> images();
  // Where rank 0 of a job that resumes from checkpoints alone tells its launcher of its steps; else null.
  StatusOr<std::unique_ptr<SharedStep>> shared_step() const;
  // Last thing in a rank: it ends by itself, whatever its exit code is.
  void EndInOrder();
  // The newest turn that this rank, or before it is known which one it is, a rank of this host has committed. Any
  // thread.
  int64_t NewestTurn();
  // The number of the next training of this process, from 0.
  int64_t NextTraining() { return trainings_++; }
  // The connection by which ranks reach one another beside their collectives; null for a single rank, before the ranks
  // have met, and for ranks of several hosts that mpirun has connected without it.
  Membership* membership() const { return membership_.get(); }
  // The host of each rank, by rank; when joined.
  const std::vector<std::string>& hosts() const { return hosts_; }
  // The failure that came first in the job, which is waited for, where this rank's collectives failed since another one
  // had ended. OK: they did not, it is not known, or the job starts again.
  Status first_cause(Groups* groups);
  // A file to which this rank's end is written too, when it is an error; empty: none.
  void LogTo(std::string path) { log_path_ = std::move(path); }
  // Whether this rank's console is the other ranks' too.
  bool SharesConsole() const;

  // This rank's work is over, with this outcome and exit code. Waits for the others when it went well, ends the job for
  // all when not, prints what there is to print, and gives the process's exit code. `groups`: over Join's world, or
  // null. After a failure the caller ends the process by _exit: destructors could wait for ranks that are gone.
  int Finish(const Status& outcome, int exit_code, Groups* groups);

 private:
  // A scheduler of this process's own, in the folder `meeting` or (empty) at `endpoint`, and where it then is.
  StatusOr<Endpoint> StartScheduler(const std::string& meeting, const Endpoint& endpoint);
  // Looks for the network interface and reads the TLS configuration, if they are given: a mistake in them is an error
  // also where no other host is there.
  Status OpenNetwork();
  // Whether this rank is the one of its console that says how the meeting goes, and that it waits.
  bool Speaks() const;
  bool SaysThatItWaits() const;
  // Waits, as long as ranks may take to meet, until the scheduler's name can be resolved.
  Status AwaitNameOf(const Endpoint& scheduler);
  // Joins the scheduler there as `node_id`.
  Status MeetAt(const Endpoint& scheduler, const std::string& node_id);
  StatusOr<std::unique_ptr<Communicator>> JoinUnderMpirun(const BackendDef& chosen);
  // The address of this host that the other hosts of `world` reach. Called by all ranks of several hosts.
  StatusOr<std::string> CommonAddressOf(Communicator& world) const;
  // The scheduler that rank 0 then runs and tells the others of through `world`.
  Status MeetThrough(Communicator& world, bool needed);
  // Whether all ranks, whose hosts are known, are on one.
  bool OnOneHost() const;
  // Connects ranks that have met.
  StatusOr<std::unique_ptr<Communicator>> Connect(const BackendDef& chosen);
  void SayWhere() const;
  // Before this rank ends and the job starts again: returns when what this rank has kept is kept by another process.
  void KeepImages();
  void OnOver(const Status& why);
  // Until the scheduler says that the job is over, or the limit.
  Status AwaitOver(absl::Duration limit);
  void SayStopped(const Status& why) const;
  // The two ends of Finish, which give the process's exit code. `over`: why the job has ended already, or OK.
  int LeaveDone(int exit_code);
  int LeaveFailed(Status outcome, int exit_code, Groups* groups, Status over);
  // The first cause, on the console of all ranks or of this one.
  void SayCause(const Status& why) const;
  std::unique_ptr<StoppedRankWatch> WatchStopped();
  // A rank that has no connection to this one does not continue: ends the job.
  void OnStopped(const Status& why);
  // A call of the backend does not come back.
  void OnStuck(const Status& why);
  std::string Name() const;

  // The network interface or subnet that the user chose; empty: none.
  const std::string& Interface() const { return options_.interface.empty() ? identity_.interface : options_.interface; }

  const JobOptions options_;
  const Identity identity_;
  int rank_ = -1, size_ = 1;
  int64_t epoch_ = 0;            // how often the workers have met
  std::atomic<int> met_as_{-1};  // the same, for NewestTurn on other threads
  bool meets_ = false;           // or has met
  bool joined_ = false, one_host_ = true;
  bool ranks_allowed_ = false;  // by the command line
  NetworkOptions network_;
  std::shared_ptr<Tls> tls_;
  const BackendDef* backend_ = nullptr;  // once joined
  std::vector<std::string> hosts_;
  std::string log_path_;
  std::mutex images_mutex_;
  std::unique_ptr<ImageKeeper> images_;
  int64_t trainings_ = 0;
  std::string secret_;  // of a job of several hosts; empty with TLS, unless there is a file
  Fd listener_;
  std::unique_ptr<Scheduler> scheduler_;         // of rank 0, where there is no other
  std::atomic<Scheduler*> scheduling_{nullptr};  // the same, for other threads
  std::unique_ptr<Membership> membership_;
  std::unique_ptr<Communicator> meeting_;  // mpi: how ranks tell each other where to meet
  std::mutex mutex_;
  std::condition_variable changed_;
  Status over_;
  std::string job_;        // once met
  bool met_ = false;       // the job's identity is known: rank_, size_, epoch_ and job_
  bool finished_ = false;  // the main thread ends the process itself
};

// The scheduler of a cluster: runs until all workers have left, or one has failed, and gives the exit code: the first
// worker's that is not 0. SIGTERM and SIGINT are passed on to the workers, which save a checkpoint and end; the second
// one ends the job at once. Called by the main thread, before any other thread runs that does not block them.
int RunScheduler(const Identity& identity, absl::Duration heartbeat_limit = kHeartbeatTimeout,
                 const NetworkOptions& network = {});

}  // namespace mslua
