#include "repl/endpoint/boundary.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "core/base/dtype.h"
#include "core/checkpoint/safetensors.h"
#include "nlohmann/json.hpp"
#include "repl/endpoint/statistics.h"

namespace mslua::endpoint {
namespace {

constexpr int64_t kPrintedElements = 1000;

std::string Quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

Boundary::Boundary(const TrainingView& view, Outlet outlet) : view_(view), outlet_(std::move(outlet)) {
  if (!view_.folder.empty()) events_ = std::fopen((view_.folder + "/events.jsonl").c_str(), "ae");
}

Boundary::~Boundary() {
  if (events_ != nullptr) std::fclose(events_);
}

void Boundary::Submit(Request request) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!closed_) {
      waiting_.push_back(std::move(request));
      view_.trainer->RequestBoundary();
      changed_.notify_all();
      return;
    }
  }
  outlet_.answer(request, absl::FailedPreconditionError("training has ended"));
}

void Boundary::Forget(uint64_t client) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto of_client = [client](const auto& x) { return x.client == client; };
  watches_.erase(std::remove_if(watches_.begin(), watches_.end(), of_client), watches_.end());
  breaks_.erase(std::remove_if(breaks_.begin(), breaks_.end(), of_client), breaks_.end());
}

bool Boundary::paused() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return paused_;
}

std::string Boundary::Waiting() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::string text;
  for (const Watch& w : watches_)
    absl::StrAppend(&text, "watch ", w.named.name, " every ", w.every, ", ", w.left, " samples left\n");
  for (const Break& b : breaks_) absl::StrAppend(&text, "break ", b.text, "\n");
  for (const Request& r : waiting_) absl::StrAppend(&text, "waits: ", r.command.text, "\n");
  return text.empty() ? "nothing is watched\n" : text;
}

void Boundary::Close() {
  std::vector<Request> unanswered;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    closed_ = true;
    unanswered.swap(waiting_);
    unanswered.insert(unanswered.end(), on_pause_.begin(), on_pause_.end());
    for (const Once& o : once_) unanswered.push_back(o.request);
    on_pause_.clear();
    once_.clear();
    watched_.reset();
  }
  for (const Request& r : unanswered) outlet_.answer(r, absl::FailedPreconditionError("training has ended"));
}

// One line of events.jsonl. What was set is in the next checkpoint too (Trainer::SaveCounters).
void Boundary::Record(const Request& request, int64_t step) {
  if (events_ == nullptr) return;
  std::fprintf(events_, "{\"step\":%lld,\"time\":%lld,\"by\":%s,\"command\":%s}\n", static_cast<long long>(step),
               static_cast<long long>(std::time(nullptr)), Quoted(request.who).c_str(),
               Quoted(request.command.text).c_str());
  std::fflush(events_);
}

// ------------------------------------------------------------------------------------------------- between steps

Status Boundary::AtBoundary(const TrainState& state) {
  Lock lock(mutex_);
  if (watched_ == nullptr) watched_ = std::make_unique<Watched>(view_);
  if (state.step != seen_step_) {
    seen_step_ = state.step;
    ReportWatches(state);
    CheckBreaks(state);
    if (pause_at_ >= 0 && state.step >= pause_at_) paused_ = true;
  }
  RunDue(state, lock);
  if (paused_) Wait(state, lock, false);
  RETURN_IF_ERROR(ShowWanted());
  if (Busy()) view_.trainer->RequestBoundary();
  return absl::OkStatus();
}

void Boundary::AtBadLoss(const TrainState& state) {
  Lock lock(mutex_);
  for (const Break& b : breaks_) {
    if (b.kind != Break::Kind::kNan) continue;
    if (watched_ == nullptr) watched_ = std::make_unique<Watched>(view_);
    outlet_.event(0, absl::StrCat("break nan: the loss of step ", state.step, " is ", state.loss,
                                  ": paused; training ends at .resume"));
    paused_ = true;
    break;
  }
  if (paused_) Wait(state, lock, true);
}

bool Boundary::Busy() const {
  return !waiting_.empty() || !watches_.empty() || !breaks_.empty() || !once_.empty() || pause_at_ >= 0;
}

// Until somebody lets training go on, or it is to stop.
void Boundary::Wait(const TrainState& state, Lock& lock, bool bad_loss) {
  view_.print("");
  ReportPause(state);
  view_.trainer->progress().Enter(TrainProgress::Phase::kPaused);
  while (paused_ && !view_.trainer->stop_requested()) {
    // A signal that asks to stop wakes nobody.
    changed_.wait_for(lock, std::chrono::milliseconds(100));
    RunDue(state, lock);
    if (bad_loss && pause_at_ >= 0) paused_ = false;
  }
  view_.trainer->progress().Enter(TrainProgress::Phase::kBetween);
}

void Boundary::ReportPause(const TrainState& state) {
  pause_at_ = -1;
  for (const Request& r : on_pause_)
    outlet_.answer(r,
                   Answer{absl::StrCat("paused at step ", state.step), absl::StrFormat("{\"step\":%d}", state.step)});
  on_pause_.clear();
}

void Boundary::RunDue(const TrainState& state, Lock& lock) {
  for (size_t i = 0; i < waiting_.size();) {
    if (waiting_[i].command.at > state.step) {
      ++i;
      continue;
    }
    const Request request = std::move(waiting_[i]);
    waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(i));
    bool later = false;
    const StatusOr<Answer> answer = Execute(request, state, &later);
    if (!answer.ok() || later) {
      if (!answer.ok()) outlet_.answer(request, answer);
      continue;
    }
    if (request.command.def->writes) Record(request, state.step);
    outlet_.answer(request, answer);
  }
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
  if (name == "pause") {
    paused_ = true;
    return Answer{view_.ranks == 1 ? absl::StrCat("paused at step ", state.step, " on 1/1 ranks")
                                   : absl::StrCat("paused at step ", state.step, " on rank ", view_.rank,
                                                  "; the others wait for it in their next collective"),
                  at};
  }
  if (name == "resume") {
    if (!paused_) return absl::FailedPreconditionError("the job is not paused");
    paused_ = false;
    return Answer{absl::StrCat("goes on from step ", state.step), at};
  }
  if (name == "clear") {
    const size_t n = breaks_.size();
    breaks_.clear();
    return Answer{absl::StrCat(n, n == 1 ? " break" : " breaks", " forgotten"), ""};
  }
  if (name == "save") {
    if (!view_.save)
      return absl::FailedPreconditionError(
          "this run saves no checkpoints: it has no run folder, or no checkpoint = {}");
    ASSIGN_OR_RETURN(const std::string path, view_.save(command.args.empty() ? "" : command.args[0]));
    return Answer{absl::StrCat("saved ", path), absl::StrCat("{\"path\":", Quoted(path), "}")};
  }
  if (name == "eval") {
    if (!view_.evaluate) return absl::FailedPreconditionError("the recipe has no eval_dataset");
    ASSIGN_OR_RETURN(const std::string line, view_.evaluate());
    return Answer{line, ""};
  }
  if (name == "stop") {
    if (!command.args.empty() && command.args[0] != "now") return absl::InvalidArgumentError("usage: .stop [now]");
    if (!command.args.empty() && view_.skip_last_save) view_.skip_last_save();
    view_.trainer->RequestStop();
    return Answer{absl::StrCat("stops at step ", state.step), at};
  }
  return absl::InternalError(absl::StrCat(".", name, " is no command of a boundary"));
}

StatusOr<Answer> Boundary::Step(const Request& request, const TrainState& state, bool* later) {
  int64_t steps = 1;
  if (!request.command.args.empty()) {
    ASSIGN_OR_RETURN(steps, ParseCount(request.command.args[0], 1, ".step"));
  }
  if (!paused_) return absl::FailedPreconditionError("the job is not paused (.pause)");
  pause_at_ = state.step + steps;
  paused_ = false;
  on_pause_.push_back(request);
  Record(request, state.step);
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
  if (watched_->ViewOf(named).data != nullptr) return AnswerValue(request, named, state.step);
  once_.push_back({request, named, state.step});
  if (paused_) {
    // Whoever paused would wait for himself.
    once_.back().request.id.clear();
    return Answer{absl::StrCat(named.name, " ", ToString(named.type), ": after the next step"), ""};
  }
  *later = true;
  return Answer();
}

StatusOr<Answer> Boundary::AnswerValue(const Request& request, const Named& named, int64_t step) {
  const TensorView value = watched_->ViewOf(named);
  const std::string head = absl::StrCat(named.name, " ", ToString(value.type));
  if (request.command.def->name != "dump") {
    const Statistics s = StatisticsOf(value);
    return Answer{absl::StrCat(head, "  ", ToString(s)),
                  absl::StrCat("{\"name\":", Quoted(named.name), ",\"type\":", Quoted(ToString(value.type)),
                               ",\"step\":", step, ",\"stat\":", ToJson(s), "}")};
  }
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
  if (path[0] != '/' && !view_.folder.empty()) path = absl::StrCat(view_.folder, "/", path);
  RETURN_IF_ERROR(checkpoint::WriteSafetensors(path, {{named.name, value.type, value.data}}).status());
  return Answer{absl::StrCat(head, " of step ", step, " -> ", path), absl::StrCat("{\"path\":", Quoted(path), "}")};
}

// "NAME [every N] [limit M]"
StatusOr<Answer> Boundary::AddWatch(const Request& request) {
  Watch watch{request.client, {}, 1, 100};
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
  std::vector<Value> values;
  const auto want = [&](const Named& named) {
    if (named.stored == nullptr && std::find(values.begin(), values.end(), named.value) == values.end())
      values.push_back(named.value);
  };
  for (const Watch& w : watches_) want(w.named);
  for (const Once& o : once_) want(o.named);
  const Status shown = watched_->Show(values);
  if (!shown.ok()) {
    for (const Once& o : once_) outlet_.answer(o.request, shown);
    once_.clear();
  }
  return watches_.empty() ? absl::OkStatus() : shown;
}

void Boundary::ReportWatches(const TrainState& state) {
  for (Watch& w : watches_) {
    const TensorView value = watched_->ViewOf(w.named);
    if (value.data == nullptr || state.step % w.every != 0) continue;
    outlet_.event(w.client, absl::StrCat("s", state.step, "  ", w.named.name, "  ", ToString(StatisticsOf(value))));
    if (--w.left == 0) outlet_.event(w.client, absl::StrCat("watch of ", w.named.name, " is over"));
  }
  watches_.erase(std::remove_if(watches_.begin(), watches_.end(), [](const Watch& w) { return w.left == 0; }),
                 watches_.end());
  for (size_t i = 0; i < once_.size();) {
    if (state.step <= once_[i].from || watched_->ViewOf(once_[i].named).data == nullptr) {
      ++i;
      continue;
    }
    outlet_.answer(once_[i].request, AnswerValue(once_[i].request, once_[i].named, state.step));
    once_.erase(once_.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

// ------------------------------------------------------------------------------------------------------- breaks

StatusOr<Answer> Boundary::AddBreak(const Request& request) {
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
  return Answer{absl::StrCat("pauses at: ", text, " (while you are attached)"), ""};
}

void Boundary::CheckBreaks(const TrainState& state) {
  for (size_t i = 0; i < breaks_.size();) {
    const Break& b = breaks_[i];
    const bool hit = (b.kind == Break::Kind::kNan && !std::isfinite(state.loss)) ||
                     (b.kind == Break::Kind::kAbove && state.loss > b.limit) ||
                     (b.kind == Break::Kind::kBelow && state.loss < b.limit) ||
                     (b.kind == Break::Kind::kStep && static_cast<double>(state.step) >= b.limit);
    if (!hit || state.step == 0) {
      ++i;
      continue;
    }
    outlet_.event(0, absl::StrFormat("break %s: paused at step %d, loss %.8g", b.text, state.step, state.loss));
    paused_ = true;
    breaks_.erase(breaks_.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

}  // namespace mslua::endpoint
