#include "attach/server/hub.h"

#include <algorithm>
#include <cstdio>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "attach/server/combine.h"
#include "core/base/clock.h"

namespace mslua::endpoint {
namespace {

// Whose commands come from the Lua beside a rank.
constexpr uint64_t kLuaClients = INT64_MAX;
constexpr int64_t kMostMargin = 1 << 20;
// More than any training does, and far from overflow.
constexpr int64_t kMostSteps = int64_t{1} << 53;
constexpr absl::Duration kProposeAgain = absl::Milliseconds(1);

bool IsLua(uint64_t client) { return client > kLuaClients / 2; }
int RankOfLua(uint64_t client) { return static_cast<int>(kLuaClients - client); }

std::vector<int> AllRanks(int n) {
  std::vector<int> ranks;
  for (int r = 0; r < n; ++r) ranks.push_back(r);
  return ranks;
}

constexpr char kEnded[] = "training has ended";

}  // namespace

// "all", "0-3", "1,2".
Status Hub::Choose(absl::string_view chosen, std::vector<int>* ranks) const {
  ranks->clear();
  if (chosen == "all") {
    *ranks = AllRanks(view_.ranks);
    return absl::OkStatus();
  }
  for (const absl::string_view part : absl::StrSplit(chosen, ',')) {
    const std::pair<absl::string_view, absl::string_view> ends = absl::StrSplit(part, absl::MaxSplits('-', 1));
    int first = 0, last = 0;
    if (!absl::SimpleAtoi(ends.first, &first) ||
        !absl::SimpleAtoi(ends.second.empty() ? ends.first : ends.second, &last))
      return absl::InvalidArgumentError("usage: @all EXPRESSION, @0 ..., @0-3 ..., @0,2 .COMMAND");
    if (first < 0 || last < first || last >= view_.ranks)
      return absl::InvalidArgumentError(absl::StrCat("@", chosen, ": the job has ranks 0 to ", view_.ranks - 1));
    for (int r = first; r <= last; ++r) ranks->push_back(r);
  }
  std::sort(ranks->begin(), ranks->end());
  ranks->erase(std::unique(ranks->begin(), ranks->end()), ranks->end());
  return absl::OkStatus();
}

void Hub::OnLine(const Server::Line& line) {
  Task task;
  task.client = line.client;
  task.id = line.id;
  task.json = line.json;
  task.pid = line.pid;
  task.line = line.text;
  Task asked = task;
  if (const Status started = Start(std::move(task)); !started.ok()) Reply(asked, started);
}

// Not OK: the line is refused.
Status Hub::Start(Task task) {
  task.seq = next_seq_++;
  task.began = MonotonicNow();
  if (absl::StartsWith(task.line, "@")) {
    const size_t blank = task.line.find(' ');
    RETURN_IF_ERROR(
        Choose(absl::string_view(task.line).substr(1, blank == std::string::npos ? blank : blank - 1), &task.ranks));
    task.line = blank == std::string::npos ? "" : std::string(absl::StripAsciiWhitespace(task.line.substr(blank)));
    if (task.line.empty()) return absl::InvalidArgumentError("usage: @all EXPRESSION, @0 ..., @0-3 ..., @0,2 .COMMAND");
    task.lua = task.line[0] != '.';
  }
  if (!task.lua) {
    ASSIGN_OR_RETURN(task.command, ParseCommand(task.line));
  }
  RETURN_IF_ERROR(Check(task));
  if (task.lua) {
    Ask(std::move(task));
  } else if (task.command.def->by_hub != nullptr) {
    Reply(task, task.command.def->by_hub(*this, {task.client, task.pid}));
  } else if (task.command.def->snapshot()) {
    if (task.ranks.empty()) task.ranks = task.command.def->each_rank ? AllRanks(view_.ranks) : std::vector<int>{0};
    task.deadline = MonotonicNow() + kAnswerLimit;
    Ask(std::move(task));
  } else {
    // Lua at a rank asks for that rank's values.
    if (IsLua(task.client) && !task.command.def->writes) task.ranks = {RankOfLua(task.client)};
    Enqueue(std::move(task));
  }
  return absl::OkStatus();
}

Status Hub::Check(const Task& task) const {
  const std::string holder = writer_ == 0 ? "" : absl::StrCat("; process ", writer_pid_, " holds it");
  const bool may = writer_ != 0 && (writer_ == task.client || IsLua(task.client));
  if (task.lua) {
    return may ? absl::OkStatus()
               : absl::PermissionDeniedError(
                     absl::StrCat("Lua at a rank: take the writer lock first (.rw, or mslua attach --rw)", holder));
  }
  if (!task.command.def->writes) return absl::OkStatus();
  const std::string& name = task.command.def->name;
  if (!task.ranks.empty())
    return absl::InvalidArgumentError(absl::StrCat(".", name, " is done by all ranks together: without @"));
  if (may || task.client == 0) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat(".", name, " changes the training: take the writer lock first (.rw, or mslua attach --rw)", holder));
}

// ------------------------------------------------------------------------------------- -- the writer lock

StatusOr<Answer> Hub::TakeLock(const Caller& caller) {
  if (IsLua(caller.client)) return absl::InvalidArgumentError("Lua at a rank has the lock of the client that sent it");
  if (writer_ != 0 && writer_ != caller.client)
    return absl::PermissionDeniedError(absl::StrCat("process ", writer_pid_, " holds the writer lock"));
  writer_ = caller.client;
  writer_pid_ = caller.pid;
  ++locks_taken_;
  left_paused_ = 0;
  resume_at_ = MonotonicTime::InfiniteFuture();
  return Answer{
      absl::StrCat("writer lock taken", view_.folder.empty() ? "" : "; what you do is recorded in events.jsonl"), ""};
}

StatusOr<Answer> Hub::ReleaseLock(const Caller& caller) {
  if (writer_ != caller.client) return absl::FailedPreconditionError("you do not hold the writer lock");
  writer_ = 0;
  const bool paused = boundary_.paused();
  if (paused || owners_.count(caller.client) > 0) left_paused_ = caller.client;
  if (!paused) return Answer{"writer lock released", ""};
  return Answer{"writer lock released; the job stays paused: .rw and .resume continue it", ""};
}

// ---------------------------------------------------------------------------------------------- lines for ranks

void Hub::Ask(Task task) {
  const uint64_t seq = task.seq;
  Task& kept = tasks_[seq] = std::move(task);
  for (const int r : kept.ranks) {
    if (gone_.count(r) > 0)
      kept.answers.emplace(r, absl::FailedPreconditionError(kEnded));
    else
      outlet_.tell(r, {{"op", "ask"}, {"seq", absl::StrCat(seq)}, {"line", kept.line}});
  }
  Finish(seq);
}

void Hub::Enqueue(Task task) {
  const uint64_t seq = task.seq;
  task.owner = IsLua(task.client) && writer_ != 0 ? writer_ : task.client;
  if (task.command.def->until_leave) owners_.insert(task.owner);
  tasks_[seq] = std::move(task);
  to_agree_.push_back(seq);
  if (to_agree_.size() == 1) ProposeNext();
}

void Hub::ProposeNext() {
  propose_again_ = MonotonicTime::InfiniteFuture();
  if (to_agree_.empty()) return;
  Task& task = tasks_[to_agree_.front()];
  // Not before what was agreed on earlier: a client's .pause comes before what forgets the client.
  task.step = std::max(view_.trainer->progress().step.load() + task.margin, agreed_step_);
  if (!gone_.empty()) return GiveUp(task, kEnded);
  Propose(task);
}

void Hub::Propose(Task& task) {
  task.acks.clear();
  RankMessage message = {{"op", "propose"},
                         {"seq", absl::StrCat(task.seq)},
                         {"step", absl::StrCat(task.step)},
                         {"client", absl::StrCat(task.owner)},
                         {"who", absl::StrCat("process ", task.pid)},
                         {"line", task.line},
                         {"ranks", absl::StrJoin(task.ranks, ",")}};
  if (task.forget) message["forget"] = "1";
  for (int r = 0; r < view_.ranks; ++r) outlet_.tell(r, message);
}

void Hub::OnAck(int from, const RankMessage& message) {
  const auto seq = static_cast<uint64_t>(NumberOf(message, "seq"));
  if (to_agree_.empty() || to_agree_.front() != seq) return;
  Task& task = tasks_[seq];
  if (NumberOf(message, "for") != task.step) return;  // to an earlier proposal
  task.acks[from] = message;
  if (static_cast<int>(task.acks.size()) < view_.ranks) return;
  int64_t furthest = 0;
  bool accepted = true;
  for (const auto& [rank, ack] : task.acks) {
    if (!TextOf(ack, "why").empty()) return GiveUp(task, TextOf(ack, "why"));
    const int64_t step = NumberOf(ack, "step");
    if (step < 0 || step > kMostSteps)
      return GiveUp(task, absl::StrCat("rank ", rank, " says it has done step ", step));
    accepted = accepted && TextOf(ack, "accepted") == "1";
    furthest = std::max(furthest, step);
  }
  if (!accepted) {
    // Steps are made faster than messages travel.
    task.margin = std::min(task.margin * 4, kMostMargin);
    task.step = furthest + task.margin;
    return Propose(task);
  }
  task.agreed = true;
  agreed_step_ = task.step;
  for (int r = 0; r < view_.ranks; ++r) outlet_.tell(r, {{"op", "decide"}, {"seq", absl::StrCat(seq)}});
  to_agree_.pop_front();
  ProposeNext();
}

// The first in the queue cannot be agreed on.
void Hub::GiveUp(Task& task, const std::string& why) {
  for (int r = 0; r < view_.ranks; ++r) outlet_.tell(r, {{"op", "drop"}, {"seq", absl::StrCat(task.seq)}});
  Reply(task, absl::FailedPreconditionError(why));
  tasks_.erase(task.seq);
  to_agree_.pop_front();
  propose_again_ = MonotonicNow() + kProposeAgain;
}

void Hub::OnAnswer(int from, const RankMessage& message) {
  const auto found = tasks_.find(static_cast<uint64_t>(NumberOf(message, "seq")));
  if (found == tasks_.end()) return;
  StatusOr<Answer> answer = Answer{TextOf(message, "text"), TextOf(message, "json")};
  if (message.count("error") > 0) answer = absl::FailedPreconditionError(TextOf(message, "error"));
  found->second.answers.emplace(from, std::move(answer));
  Finish(found->first);
}

// When all answers are there.
void Hub::Finish(uint64_t seq) {
  const auto found = tasks_.find(seq);
  const Task& task = found->second;
  const size_t wanted =
      task.lua || (!task.forget && task.command.def->snapshot()) ? task.ranks.size() : static_cast<size_t>(view_.ranks);
  if (task.answers.size() < wanted) return;
  Reply(task, task.lua ? CombineLua(task.answers) : Combine(task.command, task.answers, MonotonicNow() - task.began));
  if (task.forget) EndPauseOfGone(task);
  to_agree_.erase(std::remove(to_agree_.begin(), to_agree_.end(), seq), to_agree_.end());
  tasks_.erase(found);
}

void Hub::Reply(const Task& task, const StatusOr<Answer>& answer) {
  const bool object = answer.ok() && (task.json || IsLua(task.client)) && !answer->json.empty();
  const std::string text = !answer.ok() ? std::string(answer.status().message()) : object ? answer->json : answer->text;
  if (task.forget || task.client == 0) return;
  if (IsLua(task.client))
    return outlet_.tell(RankOfLua(task.client), {{"op", "lua"}, {answer.ok() ? "text" : "error", text}});
  outlet_.reply(task.client, task.id, answer.ok() ? StatusOr<std::string>(text) : answer.status());
}

// A command of the Lua at rank `from`, which has one while it runs what a client sent there.
void Hub::OnLua(int from, const std::string& line) {
  const bool runs = std::any_of(tasks_.begin(), tasks_.end(), [from](const auto& entry) {
    const Task& task = entry.second;
    return task.lua && task.answers.count(from) == 0 &&
           std::find(task.ranks.begin(), task.ranks.end(), from) != task.ranks.end();
  });
  if (runs) return OnLine({kLuaClients - static_cast<uint64_t>(from), writer_pid_, "lua", line, true});
  outlet_.tell(from, {{"op", "lua"}, {"error", "no Lua that a client sent runs at this rank"}});
}

void Hub::OnMessage(int from, const RankMessage& message) {
  const std::string op = TextOf(message, "op");
  if (op == "ack") return OnAck(from, message);
  if (op == "answer") return OnAnswer(from, message);
  if (op == "event") return outlet_.event(static_cast<uint64_t>(NumberOf(message, "client")), TextOf(message, "text"));
  if (op == "lua") return OnLua(from, TextOf(message, "line"));
  if (op == "leaves") {
    for (int r = 0; r < view_.ranks; ++r) outlet_.tell(r, {{"op", "release"}, {"step", TextOf(message, "step")}});
  } else if (op == "bye") {
    gone_.insert(from);
    std::vector<uint64_t> asked;
    for (auto& [seq, task] : tasks_) {
      task.answers.emplace(from, absl::FailedPreconditionError(kEnded));
      asked.push_back(seq);
    }
    for (const uint64_t seq : asked) Finish(seq);
    if (!to_agree_.empty()) ProposeNext();
  }
}

// ------------------------------------------------------------------------------------------------ clients that go

void Hub::OnLeave(uint64_t client, bool on_purpose) {
  const bool steers = client == writer_ || client == left_paused_;
  if (!steers && owners_.count(client) == 0) return;
  const bool paused = boundary_.paused();
  if (owners_.erase(client) > 0) {
    Task task;
    task.seq = next_seq_++;
    task.client = client;
    task.forget = true;
    task.command.def = &ForgetCommand();
    task.paused_before = paused;
    task.locks_taken = locks_taken_;
    Enqueue(std::move(task));
  }
  if (!steers) return;
  writer_ = left_paused_ = 0;
  if (!on_purpose && paused) resume_at_ = MonotonicNow() + kLease;
}

// Before all ranks had forgotten the client, its .pause, its .step or one of its breaks may have paused the job.
void Hub::EndPauseOfGone(const Task& forget) {
  if (forget.paused_before || writer_ != 0 || locks_taken_ != forget.locks_taken || !boundary_.paused()) return;
  resume_at_ = MonotonicNow() + kLease;
}

MonotonicTime Hub::OnWake() {
  const MonotonicTime now = MonotonicNow();
  if (now >= resume_at_) ResumeForGone();
  if (now >= propose_again_) ProposeNext();
  MonotonicTime next = std::min(resume_at_, propose_again_);
  std::vector<uint64_t> late;
  for (const auto& [seq, task] : tasks_) {
    if (now >= task.deadline) late.push_back(seq);
    next = std::min(next, task.deadline);
  }
  for (const uint64_t seq : late) {
    Task& task = tasks_[seq];
    for (const int r : task.ranks) task.answers.emplace(r, absl::DeadlineExceededError("does not answer"));
    Finish(seq);
  }
  return next;
}

void Hub::ResumeForGone() {
  resume_at_ = MonotonicTime::InfiniteFuture();
  if (!boundary_.paused()) return;
  std::fprintf(stderr, "mslua: process %d, which had paused training, is gone: training continues\n", writer_pid_);
  Task task;
  task.line = ".resume";
  task.pid = writer_pid_;
  Start(std::move(task)).IgnoreError();
}

void Hub::Close() {
  for (auto& [seq, task] : tasks_) {
    const auto own = task.answers.find(view_.rank);
    if (!task.agreed || own == task.answers.end() || !own->second.ok()) {
      Reply(task, absl::FailedPreconditionError(kEnded));
    } else if (!task.command.def->writes) {
      Reply(task, own->second);
    } else {
      // What this rank has done, the others have done at the same step.
      for (int r = 0; r < view_.ranks; ++r) task.answers.emplace(r, own->second);
      Reply(task, Combine(task.command, task.answers, MonotonicNow() - task.began));
    }
  }
  tasks_.clear();
  to_agree_.clear();
}

}  // namespace mslua::endpoint
