#include "attach/server/endpoint.h"

#include <unistd.h>

#include <algorithm>
#include <ctime>

#include "absl/strings/str_cat.h"
#include "core/base/clock.h"
#include "rendezvous/socket.h"

namespace mslua::endpoint {
namespace {

// Of messages between ranks, beside their own: the job they are of, and for whom.
constexpr char kJob[] = "job", kFor[] = "role", kHub[] = "hub", kAgent[] = "agent";

}  // namespace

StatusOr<Job> Endpoint::MakeJob(const TrainingView& view) {
  Job job;
  ASSIGN_OR_RETURN(job.id, NewJobId());
  job.name = view.name;
  job.run = view.folder;
  job.pid = getpid();
  job.ranks = view.ranks;
  job.started = std::time(nullptr);
  RETURN_IF_ERROR(MakeJobFolder(&job));
  return job;
}

StatusOr<std::unique_ptr<Endpoint>> Endpoint::Open(TrainingView view, const Job& job) {
  std::unique_ptr<Endpoint> e(new Endpoint(std::move(view), job));
  Endpoint* const self = e.get();
  e->agent_ = std::make_unique<Agent>(e->view_, [self](RankMessage m) { self->Post(0, true, std::move(m)); });
  ServerOptions options;
  // Ranks of other hosts have no such folder.
  const bool here = e->view_.rank == 0 || access(job.folder.c_str(), F_OK) == 0;
  if (here) {
    options.path = job.SocketOf(e->view_.rank);
    ASSIGN_OR_RETURN(options.token, ReadToken(job));
  }
  options.greeting = {{"job", job.id},
                      {"name", job.name},
                      {"run", job.run},
                      {"rank", absl::StrCat(e->view_.rank)},
                      {"ranks", absl::StrCat(e->view_.ranks)},
                      {"recovers", e->view_.recovers ? "1" : "0"},
                      {"job_epoch", absl::StrCat(e->view_.job_epoch)},
                      {"started", absl::FormatTime("%H:%M", absl::FromTimeT(job.started), absl::LocalTimeZone())}};
  ASSIGN_OR_RETURN(e->server_, Server::Create(options, self));
  if (e->view_.rank == 0) {
    e->hub_ = std::make_unique<Hub>(
        e->view_, e->agent_->boundary(),
        Hub::Outlet{[self](int rank, RankMessage m) { self->Post(rank, false, std::move(m)); },
                    [self](uint64_t client, const std::string& id, const StatusOr<std::string>& answer) {
                      self->server_->Reply(client, id, answer);
                    },
                    [self](uint64_t client, const std::string& line) { self->server_->Event(client, line); },
                    [self] { return self->server_->clients(); }});
  }
  if (e->view_.listen) {
    e->view_.listen([self](int from, const RankMessage& message) {
      if (TextOf(message, kJob) != self->job_.folder) return;  // of an earlier training
      {
        const std::lock_guard<std::mutex> lock(self->mutex_);
        self->in_.push_back({from, TextOf(message, kFor) == kHub, message});
      }
      self->server_->Wake();
    });
  }
  return e;
}

void Endpoint::Serve() {
  server_->Serve();
  agent_->boundary().TakeUp();
  view_.trainer->SetBoundaryListener(&agent_->boundary());
}

Endpoint::~Endpoint() {
  view_.trainer->SetBoundaryListener(nullptr);
  if (server_ == nullptr) return;  // was never open
  agent_->boundary().Close();
  if (view_.rank > 0) Post(0, true, {{"op", "bye"}});
  if (view_.listen) view_.listen(nullptr);
  server_->Stop();  // its thread answers through server_
  server_.reset();
  if (view_.rank == 0) RemoveJobFolder(job_);
}

void Endpoint::Post(int rank, bool to_hub, RankMessage message) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    (rank == view_.rank ? in_ : out_).push_back({rank, to_hub, std::move(message)});
  }
  server_->Wake();
}

// What is done with a message may bring new ones.
void Endpoint::Deliver() {
  while (true) {
    std::vector<Message> out, in;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      out.swap(out_);
      in.swap(in_);
    }
    if (out.empty() && in.empty()) return;
    for (Message& m : out) {
      m.fields[kJob] = job_.folder;
      m.fields[kFor] = m.to_hub ? kHub : kAgent;
      view_.tell(m.rank, m.fields);
    }
    for (const Message& m : in) {
      if (!m.to_hub)
        agent_->OnMessage(m.rank, m.fields);
      else if (hub_ != nullptr)
        hub_->OnMessage(m.rank, m.fields);
    }
  }
}

void Endpoint::OnCommand(const Server::Line& line) {
  if (hub_ != nullptr) return hub_->OnLine(line);
  const auto answer = OwnSnapshot(line.text);
  if (answer.ok())
    server_->Reply(line.client, line.id, line.json && !answer->json.empty() ? answer->json : answer->text);
  else
    server_->Reply(line.client, line.id, answer.status());
}

// What a rank other than 0 says to a client of its own socket, also while rank 0 says nothing.
StatusOr<Answer> Endpoint::OwnSnapshot(absl::string_view line) {
  ASSIGN_OR_RETURN(const Command command, ParseCommand(line));
  if (command.def->at_once == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("rank ", view_.rank, " answers snapshots alone here: attach to the job, which is to rank 0"));
  }
  return agent_->Snapshot(command);
}

void Endpoint::OnLeave(uint64_t client, bool on_purpose) {
  if (hub_ != nullptr) hub_->OnLeave(client, on_purpose);
}

MonotonicTime Endpoint::OnWake() {
  Deliver();
  MonotonicTime next = agent_->OnWake();
  if (hub_ != nullptr) next = std::min(next, hub_->OnWake());
  Deliver();
  return next;
}

void Endpoint::OnStop() {
  Deliver();
  if (hub_ != nullptr) hub_->Close();
}

}  // namespace mslua::endpoint
