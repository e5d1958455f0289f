#include "attach/server/boundary.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "attach/server/statistics.h"
#include "core/base/atomic_file.h"
#include "core/base/dtype.h"
#include "core/base/folder.h"
#include "core/checkpoint/safetensors.h"
#include "nlohmann/json.hpp"

namespace mslua::endpoint {
namespace {

constexpr int64_t kPrintedElements = 1000;
constexpr int64_t kProfiledSteps = 50;
constexpr size_t kMostBreaks = 100;

std::string Quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

Boundary::Boundary(const TrainingView& view, Outlet outlet) : view_(view), outlet_(std::move(outlet)) {
  if (view_.folder.empty() || view_.rank != 0) return;
  const std::string path = absl::StrCat(view_.folder, "/events.jsonl");
  auto file = RecordFile::Open(path, /*lines=*/true, view_.health);
  if (file.ok())
    events_ = *std::move(file);
  else
    view_.health->Failed(path, file.status());
}

Boundary::~Boundary() = default;

Ack Boundary::Propose(Request request, int64_t step) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const TrainProgress& progress = view_.trainer->progress();
  if (closed_) return {false, progress.step.load(), "training has ended"};
  const uint64_t seq = request.seq;
  const auto known =
      std::find_if(waiting_.begin(), waiting_.end(), [seq](const Waiting& w) { return w.request.seq == seq; });
  if (known != waiting_.end()) waiting_.erase(known);
  waiting_.push_back({std::move(request), step, Waiting::Verdict::kNone});
  view_.trainer->RequestBoundary();
  changed_.notify_all();
  // Read after the request: a boundary that is not reached by now will hear of it.
  const int64_t done = progress.step.load();
  if (done < step) return {true, done, ""};
  waiting_.pop_back();
  return {false, done, ""};
}

void Boundary::Decide(uint64_t seq, bool agreed) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (Waiting& w : waiting_) {
    if (w.request.seq == seq) w.verdict = agreed ? Waiting::Verdict::kAgreed : Waiting::Verdict::kDropped;
  }
  changed_.notify_all();
}

void Boundary::Release(int64_t step) {
  const std::lock_guard<std::mutex> lock(mutex_);
  released_ = std::max(released_, step);
  changed_.notify_all();
}

bool Boundary::paused() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return paused_;
}

std::string Boundary::Watches() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::string text;
  for (const Watch& w : watches_)
    absl::StrAppend(&text, "watch ", w.named.name, " every ", w.every, ", ", w.left, " samples left\n");
  for (const Break& b : breaks_) absl::StrAppend(&text, "break ", b.text, "\n");
  for (const Waiting& w : waiting_) absl::StrAppend(&text, "waits: ", w.request.command.text, "\n");
  return text.empty() ? "nothing is watched\n" : text;
}

void Boundary::Close() {
  std::vector<Request> unanswered;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    closed_ = true;
    for (Waiting& w : waiting_) unanswered.push_back(std::move(w.request));
    waiting_.clear();
    unanswered.insert(unanswered.end(), on_pause_.begin(), on_pause_.end());
    for (const Once& o : once_) unanswered.push_back(o.request);
    on_pause_.clear();
    once_.clear();
    if (profile_ != nullptr) unanswered.push_back(profile_request_);
    profile_.reset();
    watched_.reset();
    changed_.notify_all();
  }
  for (const Request& r : unanswered) outlet_.answer(r, absl::FailedPreconditionError("training has ended"));
}

// One line of events.jsonl, and of the checkpoints that follow.
void Boundary::Record(const Request& request, int64_t step) {
  const std::string line =
      absl::StrFormat(R"({"step":%d,"time":%d,"by":%s,"command":%s})", step, static_cast<int64_t>(std::time(nullptr)),
                      Quoted(request.who), Quoted(request.command.text));
  view_.trainer->AddIntervention(line);
  if (events_ == nullptr) return;
  events_->AppendLines(absl::StrCat(line, "\n"));
  events_->Flush();
}

// ------------------------------------------------------------------------------------------------- between steps

Status Boundary::AtBoundary(const TrainState& state) {
  Lock lock(mutex_);
  if (watched_ == nullptr) watched_ = std::make_unique<Watched>(view_);
  if (state.step != seen_step_) {
    seen_step_ = state.step;
    ReportWatches(state);
    // Ranks that train together have agreed on it after the step.
    if (const int32_t hit = view_.ranks == 1 ? FindHit(state) : 0; hit > 0) {
      breaks_.erase(breaks_.begin() + (hit - 1));
      CountNanBreaks();
      paused_ = true;
    }
    if (profile_ != nullptr) AddToProfile(state);
    if (pause_at_ >= 0 && state.step >= pause_at_) paused_ = true;
  }
  RunDue(state, lock);
  if (paused_) Wait(state, lock, false);
  RETURN_IF_ERROR(ShowWanted());
  if (Busy()) view_.trainer->RequestBoundary();
  if (profile_ != nullptr) profile_->LeaveBoundary(view_.trainer->executable());
  return absl::OkStatus();
}

// All ranks have the same breaks: with one for NaN each asks the others after each step.
StatusOr<bool> Boundary::AtLoss(const TrainState& state, bool bad) {
  if (!nan_breaks_.load(std::memory_order_relaxed)) return bad;
  ASSIGN_OR_RETURN(const bool good, AllAgree(view_, !bad));
  if (good) return false;
  Lock lock(mutex_);
  if (watched_ == nullptr) watched_ = std::make_unique<Watched>(view_);
  if (bad) {
    outlet_.event(0, absl::StrCat("break nan: rank ", view_.rank, ": the loss of step ", state.step, " is ", state.loss,
                                  ": paused; training ends at .resume"));
  }
  paused_ = bad_loss_ = true;
  Wait(state, lock, true);
  bad_loss_ = false;
  return true;
}

void Boundary::CountNanBreaks() {
  nan_breaks_ = std::any_of(breaks_.begin(), breaks_.end(), [](const Break& b) { return b.kind == Break::Kind::kNan; });
}

int32_t Boundary::BreakHit(const TrainState& state) {
  const Lock lock(mutex_);
  return FindHit(state);
}

Status Boundary::PauseNext(const TrainState& state, int32_t hit) {
  const Lock lock(mutex_);
  // Another rank may have sent it.
  if (hit < 1 || static_cast<size_t>(hit) > breaks_.size()) {
    return absl::InternalError(absl::StrCat("the ranks agreed to pause at break ", hit, " after step ", state.step,
                                            ", but this rank has ", breaks_.size(), " breaks"));
  }
  pause_at_ = state.step;
  breaks_.erase(breaks_.begin() + (hit - 1));
  CountNanBreaks();
  view_.trainer->RequestBoundary();
  return absl::OkStatus();
}

bool Boundary::Busy() const {
  return !waiting_.empty() || !watches_.empty() || !breaks_.empty() || !once_.empty() || pause_at_ >= 0 ||
         profile_ != nullptr;
}

// Until a client resumes training, or it is to stop.
void Boundary::Wait(const TrainState& state, Lock& lock, bool bad_loss) {
  view_.print("");
  ReportPause(state);
  view_.trainer->progress().Enter(TrainProgress::Phase::kPaused);
  while (paused_ && released_ < state.step && !view_.trainer->stop_requested()) {
    // A signal that asks to stop wakes nobody.
    changed_.wait_for(lock, std::chrono::milliseconds(100));
    RunDue(state, lock);
    if (bad_loss && pause_at_ >= 0) paused_ = false;
  }
  GoOn();
  if (view_.ranks > 1 && view_.trainer->stop_requested()) outlet_.leaves(state.step);
}

// Before anybody is told so: who then asks is not to hear of a pause.
void Boundary::GoOn() {
  paused_ = false;
  view_.trainer->progress().Enter(TrainProgress::Phase::kBetween);
}

void Boundary::ReportPause(const TrainState& state) {
  pause_at_ = -1;
  for (const Request& r : on_pause_)
    outlet_.answer(r,
                   Answer{absl::StrCat("paused at step ", state.step), absl::StrFormat("{\"step\":%d}", state.step)});
  on_pause_.clear();
}

bool Boundary::Due(const Waiting& w, const TrainState& state) const {
  if (w.verdict == Waiting::Verdict::kDropped) return true;
  // All ranks pause after the same step: what is agreed on and is not to be done later can be done now.
  if (paused_ && w.verdict == Waiting::Verdict::kAgreed && w.request.command.at <= state.step) return true;
  return w.step <= state.step;
}

// Other ranks' control threads answer at once, whatever their training does.
void Boundary::AwaitVerdict(uint64_t seq, int64_t step, Lock& lock) {
  const auto undecided = [&] {
    return std::any_of(waiting_.begin(), waiting_.end(), [&](const Waiting& w) {
      return w.request.seq == seq && w.verdict == Waiting::Verdict::kNone && w.step <= step;
    });
  };
  while (!closed_ && undecided()) changed_.wait_for(lock, std::chrono::milliseconds(100));
}

void Boundary::RunDue(const TrainState& state, Lock& lock) {
  for (size_t i = 0; i < waiting_.size();) {
    if (!Due(waiting_[i], state)) {
      ++i;
      continue;
    }
    if (waiting_[i].verdict == Waiting::Verdict::kNone) {
      AwaitVerdict(waiting_[i].request.seq, state.step, lock);
      i = 0;  // the list may be another by now
      continue;
    }
    const Waiting due = std::move(waiting_[i]);
    waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(i));
    if (due.verdict == Waiting::Verdict::kAgreed) Carry(due.request, state);
    i = 0;  // what comes before may be due now that the job is paused
  }
}

void Boundary::Carry(const Request& request, const TrainState& state) {
  bool later = false;
  const StatusOr<Answer> answer = Execute(request, state, &later);
  if (answer.ok() && request.command.def->writes) Record(request, state.step);
  if (!answer.ok() || !later) outlet_.answer(request, answer);
}

StatusOr<Answer> Boundary::Execute(const Request& request, const TrainState& state, bool* later) {
  const Command& command = request.command;
  const std::string& name = command.def->name;
  const std::string at = absl::StrFormat("{\"step\":%d}", state.step);
  if (name == "stat" || name == "grad" || name == "dump") return Show(request, state, later);
  if (name == "watch") return AddWatch(request);
  if (name == "unwatch") return RemoveWatch(request);
  if (name == "break") return AddBreak(request);
  if (name == "set") return ApplySet(*view_.trainer, command.args[0]);
  if (name == "step") return Step(request, state, later);
  if (name == "prof") return BeginProfile(request, later);
  if (name == "forget") return Forget(request.client);
  if (name == "pause") {
    paused_ = true;
    return Answer{absl::StrCat("paused at step ", state.step), at};
  }
  if (name == "resume") {
    if (!paused_) return absl::FailedPreconditionError("the job is not paused");
    GoOn();
    return Answer{absl::StrCat("resumed at step ", state.step), at};
  }
  if (name == "clear") {
    const size_t n = breaks_.size();
    breaks_.clear();
    CountNanBreaks();
    return Answer{absl::StrCat(n, n == 1 ? " break" : " breaks", " forgotten"), ""};
  }
  if (name == "save") return Save(command);
  if (name == "eval") {
    if (!view_.evaluate) return absl::FailedPreconditionError("the recipe has no eval_dataset");
    ASSIGN_OR_RETURN(const std::string line, view_.evaluate());
    return Answer{line, ""};
  }
  if (name == "stop") {
    if (!command.args.empty() && command.args[0] != "now") return absl::InvalidArgumentError("usage: .stop [now]");
    if (!command.args.empty() && view_.skip_last_save) view_.skip_last_save();
    view_.trainer->RequestStop();
    const int64_t last = view_.trainer->StepOfStop();
    return Answer{absl::StrCat("stops at step ", last), absl::StrFormat("{\"step\":%d}", last)};
  }
  return absl::InternalError(absl::StrCat(".", name, " is no command of a boundary"));
}

// Of ranks that train together some may have nothing of their own to save.
StatusOr<Answer> Boundary::Save(const Command& command) {
  if (bad_loss_) return absl::FailedPreconditionError("the loss is NaN; the checkpoint is not saved");
  if (!view_.save) {
    if (view_.rank > 0) return Answer();
    return absl::FailedPreconditionError("this run saves no checkpoints: it has no run folder, or no checkpoint = {}");
  }
  ASSIGN_OR_RETURN(const std::string path, view_.save(command.args.empty() ? "" : command.args[0]));
  if (path.empty()) return Answer();
  return Answer{absl::StrCat("saved ", path), absl::StrCat("{\"path\":", Quoted(path), "}")};
}

Answer Boundary::Forget(uint64_t client) {
  const auto of_client = [client](const auto& x) { return x.client == client; };
  watches_.erase(std::remove_if(watches_.begin(), watches_.end(), of_client), watches_.end());
  breaks_.erase(std::remove_if(breaks_.begin(), breaks_.end(), of_client), breaks_.end());
  CountNanBreaks();
  return Answer();
}

StatusOr<Answer> Boundary::Step(const Request& request, const TrainState& state, bool* later) {
  int64_t steps = 1;
  if (!request.command.args.empty()) {
    ASSIGN_OR_RETURN(steps, ParseCount(request.command.args[0], 1, ".step"));
  }
  if (!paused_) return absl::FailedPreconditionError("the job is not paused (.pause)");
  pause_at_ = state.step + steps;
  GoOn();
  on_pause_.push_back(request);
  *later = true;
  return Answer();
}

StatusOr<Answer> ApplySet(Trainer& trainer, const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos) return absl::InvalidArgumentError("usage: .set lr=V or lr=schedule");
  const std::string name = text.substr(0, equals), value = text.substr(equals + 1);
  double v = std::nan("");
  if (value != "schedule" && (!absl::SimpleAtod(value, &v) || !std::isfinite(v)))
    return absl::InvalidArgumentError(
        absl::StrCat(".set ", name, ": expected a number or 'schedule', got '", value, "'"));
  double before = std::nan("");
  std::vector<std::string> names;
  for (size_t i = 0; i < trainer.scalars().size(); ++i) {
    names.push_back(trainer.scalars()[i].input);
    if (names.back() == name) before = trainer.ScalarNow(static_cast<int>(i));
  }
  if (!trainer.Override(name, v).ok())
    return absl::NotFoundError(absl::StrCat("there is no '", name, "' to set: ", absl::StrJoin(names, ", ")));
  return Answer{absl::StrFormat("%s %g -> %s", name, before, value), ""};
}

// ------------------------------------------------------------------------------------------------------- values

StatusOr<Answer> Boundary::Show(const Request& request, const TrainState& state, bool* later) {
  const std::string& asked = request.command.args[0];
  ASSIGN_OR_RETURN(const Named named,
                   watched_->Find(request.command.def->name == "grad" && !absl::StartsWith(asked, "grad(")
                                      ? absl::StrCat("grad(", asked, ")")
                                      : asked));
  if (watched_->Shows(named)) return AnswerValue(request, named, state.step);
  once_.push_back({request, named, state.step});
  if (paused_) {
    // The job is paused: the client that paused it would wait here for a step that it holds up.
    once_.back().request.told = true;
    return Answer{absl::StrCat(named.name, " ", ToString(named.type), ": after the next step"), ""};
  }
  *later = true;
  return Answer();
}

StatusOr<Answer> Boundary::AnswerValue(const Request& request, const Named& named, int64_t step) {
  ASSIGN_OR_RETURN(const TensorView value, watched_->ValueOf(named));
  const std::string head = absl::StrCat(named.name, " ", ToString(value.type));
  if (request.command.def->name != "dump") {
    const Statistics s = StatisticsOf(value);
    return Answer{absl::StrCat(head, "  ", ToString(s)),
                  absl::StrCat("{\"rank\":", view_.rank, ",\"name\":", Quoted(named.name), ",\"type\":",
                               Quoted(ToString(value.type)), ",\"step\":", step, ",\"stat\":", ToJson(s), "}")};
  }
  if (!request.reports) return Answer();
  if (request.command.args.size() == 1) {
    if (value.type.elements() > kPrintedElements) {
      return absl::InvalidArgumentError(absl::StrCat(head, " is long: .dump ", named.name, " FILE.safetensors"));
    }
    std::string numbers;
    for (int64_t i = 0; i < value.type.elements(); ++i)
      absl::StrAppend(&numbers, i > 0 ? "," : "",
                      absl::StrFormat("%.9g", LoadAsDouble(value.type.dtype, value.data, i)));
    return Answer{absl::StrCat(head, "\n", numbers),
                  absl::StrCat("{\"name\":", Quoted(named.name), ",\"shape\":[", absl::StrJoin(value.type.shape, ","),
                               "],\"values\":[", numbers, "]}")};
  }
  std::string path = request.command.args[1];
  if (!absl::EndsWith(path, ".safetensors"))
    return absl::InvalidArgumentError(absl::StrCat(".dump: expected FILE.safetensors, got '", path, "'"));
  // Each rank that is asked writes its own.
  if (view_.rank > 0)
    path = absl::StrCat(absl::StripSuffix(path, ".safetensors"), ".rank_", view_.rank, ".safetensors");
  if (path[0] != '/' && !view_.folder.empty()) path = absl::StrCat(view_.folder, "/", path);
  RETURN_IF_ERROR(checkpoint::WriteSafetensors(path, {{named.name, value.type, value.data}}).status());
  return Answer{absl::StrCat(head, " of step ", step, " -> ", path), absl::StrCat("{\"path\":", Quoted(path), "}")};
}

// "NAME [every N] [limit M]"
StatusOr<Answer> Boundary::AddWatch(const Request& request) {
  Watch watch{request.client, {}, 1, 100, request.reports};
  const auto& args = request.command.args;
  for (size_t i = 1; i < args.size(); i += 2) {
    const bool every = args[i] == "every";
    if ((!every && args[i] != "limit") || i + 1 == args.size())
      return absl::InvalidArgumentError("usage: .watch NAME [every N] [limit M]");
    ASSIGN_OR_RETURN(*(every ? &watch.every : &watch.left), ParseCount(args[i + 1], 1, args[i]));
  }
  ASSIGN_OR_RETURN(watch.named, watched_->Find(args[0]));
  // A plan that cannot be made is this command's error.
  watches_.push_back(watch);
  if (const Status shown = ShowWanted(); !shown.ok()) {
    watches_.pop_back();
    return shown;
  }
  return Answer{absl::StrCat("watching ", watch.named.name, " ", ToString(watch.named.type), " every ", watch.every,
                             watch.every == 1 ? " step" : " steps", ", ", watch.left, " samples"),
                ""};
}

StatusOr<Answer> Boundary::RemoveWatch(const Request& request) {
  std::string full;
  if (!request.command.args.empty()) {
    ASSIGN_OR_RETURN(const Named named, watched_->Find(request.command.args[0]));
    full = named.name;
  }
  const size_t before = watches_.size();
  watches_.erase(std::remove_if(watches_.begin(), watches_.end(),
                                [&](const Watch& w) {
                                  return w.client == request.client && (full.empty() || w.named.name == full);
                                }),
                 watches_.end());
  const size_t n = before - watches_.size();
  return Answer{absl::StrCat(n, n == 1 ? " watch" : " watches", " ended"), ""};
}

// The running plan shows what is watched, and nothing else.
Status Boundary::ShowWanted() {
  std::vector<Named> wanted;
  const auto want = [&](const Named& named) {
    const auto same = [&](const Named& other) { return other.name == named.name; };
    if (named.stored == nullptr && std::none_of(wanted.begin(), wanted.end(), same)) wanted.push_back(named);
  };
  for (const Watch& w : watches_) want(w.named);
  for (const Once& o : once_) want(o.named);
  const Status shown = watched_->Show(wanted);
  if (!shown.ok()) {
    for (const Once& o : once_) outlet_.answer(o.request, shown);
    once_.clear();
  }
  return watches_.empty() ? absl::OkStatus() : shown;
}

void Boundary::ReportWatches(const TrainState& state) {
  std::map<std::string, std::string> said;  // of a value, for all its watchers
  for (Watch& w : watches_) {
    if (!watched_->Shows(w.named) || state.step % w.every != 0) continue;
    --w.left;
    std::string& text = said[w.named.name];
    // All ranks gather parts, whichever rank reports.
    if (text.empty() && (w.reports || w.named.gathered)) {
      const auto value = watched_->ValueOf(w.named);
      text = value.ok() ? ToString(StatisticsOf(*value)) : std::string(value.status().message());
    }
    if (!w.reports) continue;
    outlet_.event(w.client, absl::StrCat("s", state.step, "  ", w.named.name, "  ", text));
    if (w.left == 0) outlet_.event(w.client, absl::StrCat("watch of ", w.named.name, " is over"));
  }
  watches_.erase(std::remove_if(watches_.begin(), watches_.end(), [](const Watch& w) { return w.left == 0; }),
                 watches_.end());
  for (size_t i = 0; i < once_.size();) {
    if (state.step <= once_[i].from || !watched_->Shows(once_[i].named)) {
      ++i;
      continue;
    }
    outlet_.answer(once_[i].request, AnswerValue(once_[i].request, once_[i].named, state.step));
    once_.erase(once_.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

// ------------------------------------------------------------------------------------------------------ profiles

StatusOr<Answer> Boundary::BeginProfile(const Request& request, bool* later) {
  int64_t steps = 1;
  if (!request.command.args.empty()) {
    ASSIGN_OR_RETURN(steps, ParseCount(request.command.args[0], 1, ".prof"));
  }
  if (steps > kProfiledSteps)
    return absl::InvalidArgumentError(absl::StrCat(".prof: at most ", kProfiledSteps, " steps"));
  if (view_.folder.empty()) return absl::FailedPreconditionError("this run has no folder to write a trace to");
  if (profile_ != nullptr) return absl::FailedPreconditionError("a profile is being made already");
  // What follows is at the same time on all ranks.
  if (view_.gather) RETURN_IF_ERROR(view_.gather("").status());
  profile_ = std::make_unique<StepProfile>(steps, StepProfile::Now());
  profile_request_ = request;
  profile_request_.told = paused_;
  *later = !paused_;
  return Answer{absl::StrCat("profiles the next ", steps, steps == 1 ? " step" : " steps"), ""};
}

void Boundary::AddToProfile(const TrainState& state) {
  profile_->AddStep(state.step);
  if (!profile_->complete()) return;
  const auto answer = FinishProfile(state);
  profile_.reset();
  outlet_.answer(profile_request_, answer);
}

// Rank 0 writes the trace of all and speaks for them.
StatusOr<Answer> Boundary::FinishProfile(const TrainState& state) {
  std::vector<std::string> all = {profile_->Serialize(view_.rank)};
  if (view_.gather) {
    ASSIGN_OR_RETURN(all, view_.gather(all[0]));
  }
  if (view_.rank > 0) return Answer();
  const MergedTrace merged = StepProfile::Merge(all);
  const std::string folder = view_.folder + "/trace", path = absl::StrCat(folder, "/step_", state.step, ".json");
  RETURN_IF_ERROR(MakeFolders(folder));
  RETURN_IF_ERROR(WriteFileAtomically(path, merged.json));
  return Answer{
      absl::StrCat("profiled up to step ", state.step, " on ", view_.ranks, view_.ranks == 1 ? " rank" : " ranks",
                   " -> ", path, " (ui.perfetto.dev)\n ", merged.summary),
      absl::StrCat("{\"path\":", Quoted(path), ",\"step\":", state.step, ",\"summary\":", Quoted(merged.summary), "}")};
}

// ------------------------------------------------------------------------------------------------------- breaks

StatusOr<Answer> Boundary::AddBreak(const Request& request) {
  if (breaks_.size() >= kMostBreaks) return absl::ResourceExhaustedError("there are too many breaks (.clear)");
  const std::string text = absl::StrJoin(request.command.args, " ");
  Break b{request.client, text, Break::Kind::kNan, 0};
  absl::string_view rest = text;
  const bool above = absl::StartsWith(rest, "loss>"), below = absl::StartsWith(rest, "loss<");
  if (above || below) {
    b.kind = above ? Break::Kind::kAbove : Break::Kind::kBelow;
    if (!absl::SimpleAtod(rest.substr(5), &b.limit))
      return absl::InvalidArgumentError(
          absl::StrCat(".break ", text, ": expected a number after loss", rest.substr(4, 1)));
  } else if (absl::StartsWith(rest, "step ")) {
    b.kind = Break::Kind::kStep;
    ASSIGN_OR_RETURN(const int64_t step, ParseCount(rest.substr(5), 1, ".break step"));
    b.limit = static_cast<double>(step);
  } else if (rest != "nan") {
    return absl::InvalidArgumentError("usage: .break nan | loss>V | loss<V | step N");
  }
  breaks_.push_back(b);
  CountNanBreaks();
  return Answer{absl::StrCat("pauses at: ", text, " (while you are attached)"), ""};
}

int32_t Boundary::FindHit(const TrainState& state) const {
  if (state.step == 0) return 0;
  for (size_t i = 0; i < breaks_.size(); ++i) {
    const Break& b = breaks_[i];
    const bool hit = (b.kind == Break::Kind::kNan && !std::isfinite(state.loss)) ||
                     (b.kind == Break::Kind::kAbove && state.loss > b.limit) ||
                     (b.kind == Break::Kind::kBelow && state.loss < b.limit) ||
                     (b.kind == Break::Kind::kStep && static_cast<double>(state.step) >= b.limit);
    if (!hit) continue;
    outlet_.event(0, absl::StrFormat("break %s: paused at step %d, loss %.8g%s", b.text, state.step, state.loss,
                                     view_.ranks == 1 ? "" : absl::StrCat(" on rank ", view_.rank)));
    return static_cast<int32_t>(i) + 1;
  }
  return 0;
}

}  // namespace mslua::endpoint
