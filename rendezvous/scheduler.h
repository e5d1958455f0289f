// Rendezvous: a scheduler that the workers of a job register with, and what a worker knows afterwards.
//
// One connection a worker for the life of the job: its end is how a death is seen, missing heartbeats how a stopped
// process or a broken link is. On one host it is a unix socket that only this user's processes can reach; between hosts
// it is TCP, both ends prove that they know the job's secret, and each message carries a tag.
#pragma once

#include <sys/socket.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "core/base/clock.h"
#include "core/base/status.h"
#include "rendezvous/admission.h"
#include "rendezvous/cause.h"
#include "rendezvous/control.h"
#include "rendezvous/heartbeat_timeout.h"
#include "rendezvous/local_meeting.h"
#include "rendezvous/roster.h"
#include "rendezvous/socket.h"
#include "rendezvous/stream.h"

namespace mslua {

// Who takes part in an epoch of a job.
struct JobEpoch {
  int64_t number = 0;
  int size = 0;             // ranks
  int least = 0, most = 0;  // that the job may have; 0: as many as it begins with
};

struct SchedulerOptions {
  // Not empty: all workers are on this host and meet in the folder of this name (MeetingName); `endpoint` is not used.
  std::string meeting;
  Endpoint endpoint;         // TCP; port 0: one that is free
  std::string secret;        // the job's, for TCP; may be empty with `tls`
  std::shared_ptr<Tls> tls;  // for TCP; null: not encrypted
  int workers = 1;
  absl::Duration timeout = absl::Seconds(600);         // for all workers to come
  absl::Duration heartbeat_limit = kHeartbeatTimeout;  // of workers
  // How long the workers may hear nothing of the scheduler.
  absl::Duration own_heartbeat_limit = kHeartbeatTimeout;
  absl::Duration progress_every = absl::Seconds(3);
  // The process that the scheduler is a part of, for messages of workers that lose it: "pid 812, host a", and its rank;
  // -1: it is no rank.
  std::string who;
  int rank = -1;
  // What workers must give alike, by name (JoinOptions::hashes): another value than this is refused.
  std::map<std::string, std::string> shared;
  std::string id_name = "MS_NODE_ID";  // what gives a worker its id, for messages
  // A worker that runs something else ends the job soon, unless others make it complete: nobody will start another in
  // its place.
  bool differing_ends = false;
  // The job starts again when a worker has crashed, was stopped or does not answer: the workers that are left are told
  // to join again, and the scheduler waits for a worker in the place of the lost one.
  bool recover = false;
  int64_t epoch = 1;  // how often the workers have met, this time included: of a scheduler that was started again too
  int size = 0;       // ranks of the epoch before; 0: `workers`
  // Of a job that starts again: how many ranks it may continue with (0: `workers`), how many more workers wait for a
  // place, and when they get one.
  int least = 0, most = 0, spares = 0;
  absl::Duration replace_after = kReplaceAfter;
  // On the scheduler's thread, before the workers of an epoch are welcome: what a scheduler that is started again has
  // to know is kept. An error ends the job, but for a later epoch of one whose workers stay the same: they know as
  // much.
  std::function<Status(const JobEpoch&)> on_epoch;
  // Called on the scheduler's thread.
  std::function<void(const std::string&)> log;       // lines for the scheduler's log
  std::function<void(const std::string&)> progress;  // the line of `progress_every`; not set: it goes to the log
  std::function<void(const std::string&)> warn;      // lines about refused connections; not set: they go to the log
  std::function<void(const Status&)> on_cause;       // the job ends by this error, of which no worker knows yet
  std::function<void()> on_over;                     // nothing more is expected of the workers
  std::function<void()> on_turn;                     // before each look at the connections; for tests
};

// Runs on a thread of its own until every worker has left, one has failed, or it is destroyed.
class Scheduler {
 public:
  // AlreadyExists: the port, or the folder, is held. InvalidArgument: TCP with neither a secret nor TLS.
  static StatusOr<std::unique_ptr<Scheduler>> Start(const SchedulerOptions& options);
  // The same without a thread: listens, and RunHere does the work. For tests.
  static StatusOr<std::unique_ptr<Scheduler>> Make(const SchedulerOptions& options);
  Status RunHere();
  ~Scheduler();
  // Where workers find it; a unix socket's host is its path.
  const Endpoint& endpoint() const { return endpoint_; }
  // OK: every worker has left. Otherwise the first cause, with a Cause.
  Status Wait();
  // Ends the job from outside, with this cause unless there is one already.
  void Fail(const Status& why);
  // Asks the workers to stop as at this signal: they end their step, save a checkpoint and leave. Before all have come
  // the job ends.
  void Stop(int signal);
  // After Wait has given OK: the exit code of the first worker, by rank, that did not end with 0.
  int exit_code() const { return exit_code_; }
  // OK until the job is over by an error: then the first cause.
  Status Outcome();
  // Workers that have come, at the last look; whether it was all of them.
  int joined() const { return joined_; }
  bool built() const { return built_; }
  // Of the first epoch.
  const std::string& job() const { return first_job_; }
  // "; backtrace in PATH" where the worker with this rank has told of such a file and has left a report there.
  std::string CrashNoteOf(int rank);
  // The exit code with which the worker with this rank has left; absent: it has not.
  absl::optional<int> LeftWith(int rank);

 private:
  struct Worker {
    Stream socket;
    sockaddr_storage peer = {};
    std::string source;  // SourceOf(socket, peer)
    Seals seals;
    std::string buffer;
    std::map<std::string, std::string> join;  // what it said of itself
    int64_t key = 0;                          // in the roster
    int rank = -1;                            // -1: not all have come, or it waits as a spare
    MonotonicTime heard;
    bool left = false;
  };

  Scheduler(const SchedulerOptions& options, std::unique_ptr<MeetingFolder> folder, Fd listener, Endpoint endpoint);
  void Work();
  void Run();
  void Join(Admission::Newcomer newcomer);
  void Replace(const Worker& newcomer);
  void RemoveClosed();
  void Read(Worker& worker);
  // What has come from the worker, message by message.
  void Understand(Worker& worker);
  void Handle(Worker& worker, const ControlMessage& message);
  // Closes the connection of a worker that breaks the protocol.
  void Expel(Worker& worker, const std::string& why);
  void Refuse(Worker& newcomer, const std::string& why);
  // What the worker gives otherwise than the scheduler; empty: nothing.
  std::string OwnDifference(const Worker& newcomer) const;
  // What the worker runs otherwise than the others; empty: nothing.
  std::string Difference(const Worker& newcomer) const;
  // Carries out what the roster has decided.
  void Apply(const Roster::Decision& decision);
  void Welcome();
  void Regroup(const Roster::Decision& decision);
  void End(const Status& status);
  // The job cannot continue as it is: it is over by this error, or starts again.
  void Fault(const Status& status) { Apply(roster_.Fail(status, MonotonicNow())); }
  // The worker's connection has ended, for this reason.
  void Lose(const Worker& worker, const Status& why) { Apply(roster_.Lose(worker.key, why, MonotonicNow())); }
  // Tells those who wait who is missing, or that they are spares.
  void TellProgress();
  void Compare(Worker& worker, const std::string& name, const std::string& value);
  // What a worker tells of itself while it runs.
  void Listen(Worker& worker, const ControlMessage& heartbeat);
  // Numbers of ranks that the job may have, "2:4", as rank 0 says.
  void Allow(const std::string& elastic);
  // Keeps what a scheduler that is started again has to know. False: the job ends.
  bool Remember();
  void Relay(const Worker& from, ControlMessage message);
  // Lets the worker read what was sent last.
  static void Close(Worker& worker, MonotonicTime deadline);
  void CloseAll(absl::Duration limit);
  // Asks the workers to stop, or says that they have been asked before.
  void PassOn(int signal);
  // Looks for workers that have not been heard of for too long.
  void LookForSilence(MonotonicTime now);
  // Lets the workers read what was sent last before their connections close.
  void Drain();
  // "rank 1/2 (pid 812, host a)".
  std::string NameOf(const Worker& worker) const;
  // Why the job is over when the worker's connection ends like this.
  Status EndOf(const Worker& worker, const Status& status);
  void Log(const std::string& line) const;
  static void Send(Worker& worker, const ControlMessage& message);
  int Joined() const;

  const SchedulerOptions options_;
  const std::unique_ptr<MeetingFolder> folder_;  // of a unix socket
  const Fd listener_;
  const Endpoint endpoint_;
  Admission admission_;
  Fd stop_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::map<std::string, std::map<int, std::string>> compared_;  // by name and rank
  const std::string first_job_;
  std::string job_;
  Roster roster_;
  int64_t next_key_ = 1;
  std::string elastic_;  // what Allow has been told
  int least_ = 0, most_ = 0;
  int stop_signal_ = 0;  // for the workers, when they have met again
  std::atomic<int> joined_{0};
  std::atomic<bool> built_{false};
  bool over_ = false;
  std::string refused_;  // "1 is refused: its recipe is ...", the last one
  MonotonicTime ends_at_ = MonotonicTime::InfiniteFuture();
  Status result_;
  int exit_code_ = 0;
  std::string regrouped_;  // why the workers meet again; empty: it is the first time
  std::mutex mutex_;       // of the five below
  Status outside_;         // of Fail, until the thread has seen it
  int signal_ = 0;         // of Stop, until the thread has seen it
  Status outcome_;         // result_, for other threads
  // By rank: the file that a crash would be reported in, and who would write it.
  std::map<int, std::pair<std::string, std::string>> crash_files_;
  std::map<int, int> left_;  // exit codes by rank
  std::thread thread_;
};

}  // namespace mslua
