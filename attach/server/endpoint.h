// The endpoint of one rank's training: a socket for clients, and the way to the endpoints of the other ranks. Rank 0's
// is the hub that clients attach to; the others answer snapshots of their own.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "attach/server/agent.h"
#include "attach/server/hub.h"
#include "attach/server/job_folder.h"
#include "attach/server/server.h"
#include "attach/server/training_view.h"
#include "core/base/clock.h"

namespace mslua::endpoint {

class Endpoint : private Server::Handler {
 public:
  // On rank 0: makes the folder that the ranks of this host share.
  static StatusOr<Job> MakeJob(const TrainingView& view);
  // On the training thread, before the first step. What the view points at outlives the endpoint. Of `job` the other
  // ranks need the folder; a rank of another host than rank 0's does without a socket. When all ranks are open, Serve.
  static StatusOr<std::unique_ptr<Endpoint>> Open(TrainingView view, const Job& job);
  void Serve();
  // After the last step: answers what waits, and removes the socket and the job's folder.
  ~Endpoint() override;

  const Job& job() const { return job_; }
  Boundary& boundary() { return agent_->boundary(); }

 private:
  Endpoint(TrainingView view, const Job& job) : view_(std::move(view)), job_(job) {}
  void OnCommand(const Server::Line& line) override;
  void OnLeave(uint64_t client, bool on_purpose) override;
  MonotonicTime OnWake() override;
  void OnStop() override;
  int ExtraFd() override { return agent_->helper_fd(); }
  void OnExtra() override { agent_->OnHelper(); }

  StatusOr<Answer> OwnSnapshot(absl::string_view line);
  // Any thread: a message for the agent or the hub of a rank, sent or taken by the server's thread.
  void Post(int rank, bool to_hub, RankMessage message);
  void Deliver();

  struct Message {
    int rank;  // to whom, or from whom
    bool to_hub;
    RankMessage fields;
  };

  const TrainingView view_;
  const Job job_;
  std::mutex mutex_;  // guards the two below
  std::vector<Message> out_, in_;
  std::unique_ptr<Agent> agent_;
  std::unique_ptr<Hub> hub_;  // of rank 0
  std::unique_ptr<Server> server_;
};

}  // namespace mslua::endpoint
