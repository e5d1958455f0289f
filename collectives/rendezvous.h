// Rendezvous: a scheduler that the workers of a job register with, and what a worker knows afterwards.
//
// Over TCP, one connection a worker for the life of the job: its end is how a death is seen, missing heartbeats how a
// stopped process or a cut link is.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "collectives/control.h"
#include "collectives/native.h"
#include "collectives/socket.h"
#include "core/base/status.h"

namespace mslua {

struct SchedulerOptions {
  Endpoint endpoint;  // port 0: one that is free
  int workers = 1;
  absl::Duration timeout = absl::Seconds(600);        // for all workers to come
  absl::Duration heartbeat_limit = absl::Seconds(3);  // without a sign of life
  absl::Duration progress_every = absl::Seconds(3);
  std::function<void(const std::string&)> log;  // lines for the scheduler's log; called on its thread
};

// Runs on a thread of its own until every worker has left, one has failed, or it is destroyed.
class Scheduler {
 public:
  // AlreadyExists: the port is held.
  static StatusOr<std::unique_ptr<Scheduler>> Start(const SchedulerOptions& options);
  ~Scheduler();
  const Endpoint& endpoint() const { return endpoint_; }
  // OK: every worker has left. Otherwise the first cause.
  Status Wait();

 private:
  struct Worker {
    Fd socket;
    std::string buffer;
    std::map<std::string, std::string> join;  // empty: has not introduced itself
    int rank = -1;
    absl::Time heard;
    bool left = false;
  };

  Scheduler(const SchedulerOptions& options, Fd listener, Endpoint endpoint);
  void Run();
  void Read(Worker& worker);
  void Handle(Worker& worker, const ControlMessage& message);
  std::string Refusal(const Worker& newcomer) const;
  void Build();
  void Compare(Worker& worker, const std::string& name, const std::string& value);
  void End(const Status& status);
  std::string Missing() const;
  void Log(const std::string& line) const;
  static void Send(Worker& worker, const ControlMessage& message);
  int Joined() const;

  const SchedulerOptions options_;
  const Fd listener_;
  const Endpoint endpoint_;
  Fd stop_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::map<std::string, std::map<int, std::string>> compared_;  // by name and rank
  bool built_ = false, over_ = false;
  Status result_;
  std::thread thread_;
};

struct JoinOptions {
  Endpoint scheduler;
  std::string node_id;  // all digits: the rank it asks for; empty: one is made up
  NativePeer self;      // this host's name and where this rank listens
  // What ranks must share, by name ("build", "protocol", "recipe"): whoever differs from the first is refused.
  std::map<std::string, std::string> hashes;
  absl::Duration timeout = absl::Seconds(600);
  std::function<void(const std::string&)> log;
};

// A worker's place in the job. Its thread sends heartbeats. Destroying it before Leave ends the job for all.
class Membership {
 public:
  // FailedPrecondition: refused, with the scheduler's reason; DeadlineExceeded: no scheduler, or too few workers.
  static StatusOr<std::unique_ptr<Membership>> Join(const JoinOptions& options);
  ~Membership();

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(peers_.size()); }
  const std::vector<NativePeer>& peers() const { return peers_; }
  const std::string& job() const { return job_; }

  // OK while the job lives; else why it is over.
  Status Health();
  // Called by all ranks with one name and their value ("graph"): FailedPrecondition names ranks and values that differ.
  Status Compare(const std::string& name, const std::string& value, absl::Duration limit);
  // Ends the job on all ranks.
  void Abort(const Status& why);
  // This rank has finished.
  void Leave();

 private:
  Membership() = default;
  void Run();
  Status Send(const ControlMessage& message);

  Fd socket_, stop_;
  int rank_ = 0;
  std::vector<NativePeer> peers_;
  std::string job_;
  std::mutex mutex_, send_mutex_;
  std::condition_variable changed_;
  Status health_;
  std::map<std::string, std::string> verdicts_;
  std::thread thread_;
};

}  // namespace mslua
