// A worker's side of the rendezvous: it joins a scheduler (rendezvous/scheduler.h) and stays connected to it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "core/base/clock.h"
#include "core/base/status.h"
#include "rendezvous/cause.h"
#include "rendezvous/control.h"
#include "rendezvous/handshake.h"
#include "rendezvous/heartbeat_timeout.h"
#include "rendezvous/rank_address.h"
#include "rendezvous/socket.h"
#include "rendezvous/stream.h"

namespace mslua {

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
  // Called with what other ranks tell, on a thread of the membership's that must not wait for long.
  using Listener = std::function<void(int from, const Texts& texts)>;
  // Any thread: named texts (64 KiB in all, none named "to", "from" or "channel") for another rank's listener of
  // `channel`, by way of the scheduler. They arrive in the order in which they were sent, or the job is over; a rank
  // without a listener drops them.
  void Tell(const std::string& channel, int rank, const Texts& texts);
  // Gives `channel` its only listener. Null: nobody listens, from when this returns.
  void Listen(const std::string& channel, Listener listener);

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
  std::map<std::string, Listener> listeners_;  // by channel; called with listener_mutex_ held
  Status health_;
  std::map<std::string, std::string> verdicts_;
  std::thread thread_;
};

}  // namespace mslua
