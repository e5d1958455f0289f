// The endpoint of one rank's training: who is attached, what they may do, and whom their commands go to.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "repl/endpoint/boundary.h"
#include "repl/endpoint/job_folder.h"
#include "repl/endpoint/lua_helper.h"
#include "repl/endpoint/server.h"
#include "repl/endpoint/snapshot.h"
#include "repl/endpoint/training_view.h"

namespace mslua::endpoint {

// After the holder of the writer lock has died while the job was paused.
inline constexpr absl::Duration kLease = absl::Seconds(2);

class Endpoint : private Server::Handler {
 public:
  // On rank 0: makes the folder that the ranks of this host share.
  static StatusOr<Job> MakeJob(const TrainingView& view);
  // On the training thread, before the first step. What the view points at outlives the endpoint. Of `job` the other
  // ranks need the folder.
  static StatusOr<std::unique_ptr<Endpoint>> Open(TrainingView view, const Job& job);
  // After the last step: answers what waits, and removes the socket and the job's folder.
  ~Endpoint() override;

  const Job& job() const { return job_; }

 private:
  Endpoint(TrainingView view, const Job& job);
  void OnCommand(const Server::Line& line) override;
  void OnLeave(uint64_t client, bool on_purpose) override;
  absl::Time OnWake() override;
  int ExtraFd() override { return helper_.fd(); }
  void OnExtra() override { helper_.OnReadable(); }

  StatusOr<Answer> Own(const Server::Line& line, const Command& command);
  StatusOr<Answer> TakeLock(const Server::Line& line);
  Status CheckLock(const Server::Line& line, const Command& command) const;
  Answer StatusLine() const;
  void Evaluate(const Server::Line& line);
  void RunForHelper(const std::string& text);
  void ResumeForDead();
  void Deliver(const Request& request, const StatusOr<Answer>& answer);

  const TrainingView view_;
  const Job job_;
  std::unique_ptr<Snapshots> snapshots_;
  std::unique_ptr<Boundary> boundary_;
  // Of the server's thread.
  uint64_t writer_ = 0;  // 0: nobody
  int writer_pid_ = 0;
  absl::Time resume_at_ = absl::InfiniteFuture();
  LuaHelper helper_;
  std::unique_ptr<Server> server_;
};

}  // namespace mslua::endpoint
