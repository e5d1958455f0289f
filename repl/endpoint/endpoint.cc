#include "repl/endpoint/endpoint.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <ctime>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"

namespace mslua::endpoint {
namespace {

// Whose commands come from Lua beside the rank.
constexpr uint64_t kHelperClient = UINT64_MAX;

// "@all x", "@0-3 x", "@1,2 x": the text after the ranks when they hold `rank`. InvalidArgument: no such ranks.
StatusOr<std::string> TextForRank(absl::string_view line, int rank, int ranks) {
  const size_t blank = line.find(' ');
  if (blank == absl::string_view::npos) return absl::InvalidArgumentError("usage: @all EXPRESSION, @0 ..., @0-3 ...");
  const absl::string_view chosen = line.substr(1, blank - 1);
  const std::string text(line.substr(blank + 1));
  if (chosen == "all") return text;
  bool mine = false;
  for (const absl::string_view part : absl::StrSplit(chosen, ',')) {
    const std::pair<absl::string_view, absl::string_view> ends = absl::StrSplit(part, absl::MaxSplits('-', 1));
    int first = 0, last = 0;
    if (!absl::SimpleAtoi(ends.first, &first) ||
        !absl::SimpleAtoi(ends.second.empty() ? ends.first : ends.second, &last))
      return absl::InvalidArgumentError("usage: @all EXPRESSION, @0 ..., @0-3 ...");
    if (first < 0 || last < first || last >= ranks)
      return absl::InvalidArgumentError(absl::StrCat("@", chosen, ": the job has ranks 0 to ", ranks - 1));
    mine = mine || (first <= rank && rank <= last);
  }
  if (!mine) return absl::CancelledError(absl::StrCat("@", chosen, " is not rank ", rank));
  return text;
}

}  // namespace

Endpoint::Endpoint(TrainingView view, const Job& job)
    : view_(std::move(view)),
      job_(job),
      helper_({[this](uint64_t client, const std::string& id, const StatusOr<std::string>& answer) {
                 const std::string head = absl::StrCat("[", view_.rank, "] ");
                 if (answer.ok())
                   server_->Reply(client, id, head + *answer);
                 else
                   server_->Reply(client, id,
                                  Status(answer.status().code(), head + std::string(answer.status().message())));
               },
               [this](const std::string& line) { RunForHelper(line); }}) {}

StatusOr<Job> Endpoint::MakeJob(const TrainingView& view) {
  Job job;
  job.id = NewJobId();
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
  ASSIGN_OR_RETURN(const std::string token, ReadToken(job));
  e->snapshots_ = std::make_unique<Snapshots>(e->view_);
  Endpoint* const self = e.get();
  e->boundary_ = std::make_unique<Boundary>(
      e->view_,
      Boundary::Outlet{[self](const Request& r, const StatusOr<Answer>& a) { self->Deliver(r, a); },
                       [self](uint64_t client, const std::string& line) { self->server_->Event(client, line); }});
  ServerOptions options;
  options.path = job.SocketOf(e->view_.rank);
  options.token = token;
  options.greeting = {{"job", job.id},
                      {"name", job.name},
                      {"run", job.run},
                      {"rank", absl::StrCat(e->view_.rank)},
                      {"ranks", absl::StrCat(e->view_.ranks)},
                      {"started", absl::FormatTime("%H:%M", absl::FromTimeT(job.started), absl::LocalTimeZone())}};
  ASSIGN_OR_RETURN(e->server_, Server::Create(options, self));
  e->server_->Serve();
  e->view_.trainer->SetBoundaryListener(e->boundary_.get());
  return e;
}

Endpoint::~Endpoint() {
  view_.trainer->SetBoundaryListener(nullptr);
  if (boundary_ != nullptr) boundary_->Close();
  server_.reset();
  if (view_.rank == 0) RemoveJobFolder(job_);
}

void Endpoint::Deliver(const Request& request, const StatusOr<Answer>& answer) {
  if (request.client == 0) return;
  if (request.client == kHelperClient) {
    if (answer.ok())
      helper_.Reply(answer->json.empty() ? answer->text : answer->json);
    else
      helper_.Reply(answer.status());
    return;
  }
  if (request.id.empty()) {
    server_->Event(request.client, answer.ok() ? answer->text : answer.status().message());
  } else if (!answer.ok()) {
    server_->Reply(request.client, request.id, answer.status());
  } else {
    server_->Reply(request.client, request.id, request.json && !answer->json.empty() ? answer->json : answer->text);
  }
}

void Endpoint::RunForHelper(const std::string& text) { OnCommand({kHelperClient, writer_pid_, "lua", text, true}); }

// Lua at the rank: for whoever may steer.
void Endpoint::Evaluate(const Server::Line& line) {
  const auto text = TextForRank(line.text, view_.rank, view_.ranks);
  if (writer_ != line.client) {
    server_->Reply(
        line.client, line.id,
        absl::PermissionDeniedError("Lua at a rank: take the writer lock first (.rw, or mslua attach --rw)"));
  } else if (!text.ok()) {
    server_->Reply(line.client, line.id, text.status());
  } else {
    helper_.Evaluate(line.client, line.id, *text);
  }
}

void Endpoint::OnCommand(const Server::Line& line) {
  if (absl::StartsWith(line.text, "@") && line.client != kHelperClient) return Evaluate(line);
  Request request{line.client, line.id, line.json, {}, absl::StrCat("process ", line.pid)};
  auto command = ParseCommand(line.text);
  if (!command.ok()) return Deliver(request, command.status());
  if (const Status allowed = CheckLock(line, *command); !allowed.ok()) return Deliver(request, allowed);
  if (command->def->snapshot) return Deliver(request, Own(line, *command));
  request.command = *std::move(command);
  const int64_t step = view_.trainer->progress().step.load();
  if (request.command.at > step) {
    Deliver(request, Answer{absl::StrCat("scheduled at step ", request.command.at, ": ", request.command.text), ""});
    request.id.clear();
  }
  boundary_->Submit(std::move(request));
}

Status Endpoint::CheckLock(const Server::Line& line, const Command& command) const {
  const std::string& name = command.def->name;
  if (view_.ranks > 1 && (name == "set" || name == "save" || name == "eval")) {
    return absl::UnimplementedError(
        absl::StrCat(".", name, ": all ranks would have to do it at one step, which is not built yet"));
  }
  if (!command.def->writes || writer_ == line.client || (line.client == kHelperClient && writer_ != 0))
    return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat(
      ".", command.def->name, " changes the training: take the writer lock first (.rw, or mslua attach --rw)",
      writer_ == 0 ? "" : absl::StrCat("; process ", writer_pid_, " holds it")));
}

// The snapshots that are about the endpoint itself, and the rest.
StatusOr<Answer> Endpoint::Own(const Server::Line& line, const Command& command) {
  const std::string& name = command.def->name;
  if (name == "help") return Answer{CommandHelp(), ""};
  if (name == "rw") return TakeLock(line);
  if (name == "status") return StatusLine();
  if (name == "watches") return Answer{boundary_->Waiting(), ""};
  if (name == "ro") {
    if (writer_ != line.client) return absl::FailedPreconditionError("you do not hold the writer lock");
    writer_ = 0;
    return Answer{"writer lock released", ""};
  }
  if (name == "who") {
    return Answer{absl::StrCat(server_->clients(), server_->clients() == 1 ? " client" : " clients",
                               writer_ == 0 ? "; nobody steers" : absl::StrCat("; process ", writer_pid_, " steers")),
                  ""};
  }
  return snapshots_->Take(command);
}

StatusOr<Answer> Endpoint::TakeLock(const Server::Line& line) {
  if (writer_ != 0 && writer_ != line.client)
    return absl::PermissionDeniedError(absl::StrCat("process ", writer_pid_, " holds the writer lock"));
  writer_ = line.client;
  writer_pid_ = line.pid;
  resume_at_ = absl::InfiniteFuture();
  return Answer{
      absl::StrCat("writer lock taken", view_.folder.empty() ? "" : "; what you do is recorded in events.jsonl"), ""};
}

Answer Endpoint::StatusLine() const {
  TrainProgress& p = view_.trainer->progress();
  const auto phase = p.phase.load();
  return {absl::StrFormat("e%d:s%d %s", p.epoch.load() + 1, p.step.load(),
                          phase == TrainProgress::Phase::kPaused ? "PAUSED" : "run"),
          absl::StrFormat("{\"epoch\":%d,\"step\":%d,\"phase\":\"%s\"}", p.epoch.load() + 1, p.step.load(),
                          PhaseName(phase))};
}

void Endpoint::OnLeave(uint64_t client, bool on_purpose) {
  boundary_->Forget(client);
  if (client != writer_) return;
  writer_ = 0;
  if (!on_purpose && boundary_->paused()) {
    resume_at_ = absl::Now() + kLease;
    server_->Wake();
  }
}

absl::Time Endpoint::OnWake() {
  helper_.OnDeadline();
  if (absl::Now() >= resume_at_) ResumeForDead();
  return std::min(resume_at_, helper_.deadline());
}

void Endpoint::ResumeForDead() {
  resume_at_ = absl::InfiniteFuture();
  if (!boundary_->paused()) return;
  std::fprintf(stderr, "mslua: process %d, which had paused training, is gone: goes on\n", writer_pid_);
  Request request{0, "", false, {}, "lease"};
  request.command = *ParseCommand(".resume");
  boundary_->Submit(std::move(request));
}

}  // namespace mslua::endpoint
