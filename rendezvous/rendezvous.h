// Rendezvous: a scheduler that the workers of a job register with, and what a worker knows afterwards.
//
// One connection a worker for the life of the job: its end is how a death is seen, missing heartbeats how a stopped
// process or a broken link is. On one host it is a unix socket that only this user's processes can reach; between hosts
// it is TCP, both ends prove that they know the job's secret, and each message carries a tag.
#pragma once

#include <atomic>
#include <condition_variable>
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
#include "rendezvous/local_meeting.h"
#include "rendezvous/rank_address.h"
#include "rendezvous/roster.h"
#include "rendezvous/socket.h"
#include "rendezvous/stream.h"

namespace mslua {

// How long another process may give no sign of life before it counts as stopped, or the link to it as broken.
// Heartbeats come five times as often. A process of this host that runs, or would if it had a core, gets twelve times
// as long.
inline constexpr absl::Duration kHeartbeatTimeout = absl::Milliseconds(2500);

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
  // to join again, and it is waited for one in the place of who is gone.
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
  int stop_signal_ = 0;  // that came while the workers met again
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

struct JoinOptions {
  Endpoint scheduler;             // Scheduler::endpoint
  std::string secret;             // the job's, for TCP; may be empty with `tls`
  std::shared_ptr<Tls> tls = {};  // for TCP; null: not encrypted
  std::string where;              // the scheduler's address in messages; empty: `scheduler`
  std::string node_id;            // all digits: the rank it asks for; empty: one is made up
  RankAddress self;               // this host's name and where this rank listens
  std::string who;                // for messages: "pid 812, host a"
  // What ranks must share, by name ("build", "protocol", "recipe"): a rank that differs from the first, or has fewer or
  // more names, is refused.
  std::map<std::string, std::string> hashes;
  absl::Duration timeout = absl::Seconds(600);
  std::function<void(const std::string&)> log;      // progress, while others are awaited
  std::function<void(const std::string&)> waiting;  // every 3 s, while no scheduler answers: what is tried
  std::function<void(const Status&)> on_over = {};  // the job is over by an error; called once, on a thread of its own
  std::function<void(int)> on_stop = {};            // the scheduler asks to stop as at this signal; on the same thread
  // A job that starts again: without its scheduler it continues, until another one answers. The end of the job has
  // StartsAgain() where this worker is to join again.
  bool recover = false;
  std::function<int64_t()> turn = {};  // the newest that this worker has committed; -1: none
  int64_t epoch = 0;                   // the last one that this worker was in; 0: none
};

// A worker's place in the job. Its thread sends heartbeats. Destroying it before Leave ends the job for all.
class Membership {
 public:
  // Tries again, ever more slowly, when the scheduler does not listen yet or closes the connection without a reason.
  // FailedPrecondition: refused, with the scheduler's reason; DeadlineExceeded: no scheduler, or too few workers;
  // PermissionDenied (with a Cause): one of the two does not know the job's secret, is another user's, or refuses the
  // other's certificate; Cancelled: the job is done, without this worker or with its work.
  static StatusOr<std::unique_ptr<Membership>> Join(const JoinOptions& options);
  ~Membership();

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(peers_.size()); }
  const std::vector<RankAddress>& peers() const { return peers_; }
  const std::string& job() const { return job_; }
  // How often the workers have met, this time included.
  int64_t epoch() const { return epoch_; }

  // Why they have met again; empty: it is the first time, or the scheduler does not know.
  const std::string& cause() const { return cause_; }

  // The absolute path of the file in which a crash of this process would be reported (launch/crash_file.h): who says
  // that it has died names it.
  void TellCrashFile(const std::string& path);
  // Numbers of ranks that the job may have, as what is trained says, where its starter has not said it.
  void TellElastic(int least, int most);
  // OK while the job lives; else why it is over.
  Status Health();
  // Called by all ranks with one name and their value ("graph"): FailedPrecondition names ranks and values that differ.
  Status Compare(const std::string& name, const std::string& value, absl::Duration limit);
  // Ends the job on all ranks, with this exit code.
  void Abort(const Status& why, int exit_code);
  // All ranks have done their work, and leave word of it where a scheduler that is started again looks: from then on
  // the loss of the scheduler is the job's end, too.
  void EndsWithoutScheduler() { ends_without_scheduler_ = true; }
  // This rank has finished and will end with this exit code. A connection that ends from then on is the job's end.
  void Leave(int exit_code);
  // After Leave: waits, at most `limit`, until the scheduler ends the connection, as it does when all have left. Not
  // OK: the job is over for another cause, or starts again; DeadlineExceeded: neither is known.
  Status AwaitEnd(absl::Duration limit);
  // Whether the job is over because this rank has lost the scheduler: nobody else tells why.
  bool lost_scheduler() const { return lost_scheduler_; }

  using Texts = std::map<std::string, std::string>;
  // Any thread: named texts (64 KiB in all, none named "to" or "from") for the listener of another rank, by way of the
  // scheduler. They arrive in the order in which they were sent, or the job is over; a rank without a listener drops
  // them.
  void Tell(int rank, const Texts& texts);
  // Called with what other ranks tell, on a thread of the membership's that must not wait for long. Null: nobody
  // listens, from when this returns.
  void Listen(std::function<void(int from, const Texts& texts)> listener);

 private:
  Membership() = default;
  // What an attempt to join has learnt.
  struct Waited {
    bool spare = false;  // the worker has waited as one
    int64_t epoch = 0;   // of the job that runs without it
  };
  // One attempt. Unavailable: another may do better.
  static StatusOr<std::unique_ptr<Membership>> TryJoin(const JoinOptions& options, MonotonicTime deadline,
                                                       Waited* waited);
  void Run();
  Status Send(const ControlMessage& message);
  void Deliver(const ControlMessage& message);
  // What the scheduler says of itself when it registers this worker.
  void Introduce(const ControlMessage& message);
  // The next message while this worker waits for the others to come; sends heartbeats. Unavailable: the scheduler has
  // given no sign of life.
  StatusOr<ControlMessage> AwaitOthers(MonotonicTime deadline);
  // Of a job that starts again, which has lost its scheduler: waits until one answers. False: this object goes.
  bool AwaitScheduler();
  // OK: one answers. PermissionDenied: it answers, and refuses this worker.
  Status Knock() const;
  ControlMessage Heartbeat();
  // Why the job is over when the connection to the scheduler ends like this.
  Status Lost(const Status& status) const;
  Status Silent() const;

  std::shared_ptr<Tls> tls_;
  Stream socket_;
  Fd stop_;
  Seals seals_;  // the sending one under send_mutex_
  std::function<void(const Status&)> on_over_;
  std::function<void(int)> on_stop_;
  JoinOptions options_;
  std::string scheduler_ = "the scheduler";  // "rank 0/2 (pid 812, host a)"
  int scheduler_rank_ = -1;
  absl::Duration heartbeat_limit_ = kHeartbeatTimeout;  // of the scheduler
  MonotonicTime heard_;                                 // of it
  std::atomic<bool> lost_scheduler_{false}, left_{false}, ends_without_scheduler_{false};
  bool ended_ = false;  // after Leave; under mutex_
  int rank_ = 0;
  std::vector<RankAddress> peers_;
  std::string job_;
  int64_t epoch_ = 1;
  std::string cause_;
  std::string crash_file_;  // under mutex_
  std::string elastic_;     // "2:4"; under mutex_
  std::mutex mutex_, send_mutex_, listener_mutex_;
  std::condition_variable changed_;
  std::function<void(int, const Texts&)> listener_;  // called with listener_mutex_ held
  Status health_;
  std::map<std::string, std::string> verdicts_;
  std::thread thread_;
};

}  // namespace mslua
