#include "attach/server/boundary.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "attach/server/answer_json.h"

namespace mslua::endpoint {

Boundary::Boundary(const TrainingView& view, Outlet outlet)
    : view_(view), outlet_(std::move(outlet)), steering_(view_, outlet_) {
  if (view_.folder.empty() || view_.rank != 0) return;
  const std::string path = absl::StrCat(view_.folder, "/events.jsonl");
  auto file = RecordFile::Open(path, /*lines=*/true, view_.health);
  if (file.ok())
    events_ = *std::move(file);
  else
    view_.health->Failed(path, file.status());
}

Boundary::~Boundary() = default;

void Boundary::TakeUp() {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const Trainer::LaterOverride& later : view_.trainer->later_overrides()) {
    const std::string value = std::isnan(later.value) ? "schedule" : absl::StrCat(later.value);
    steering_.Schedule({later.at, 0, later.input, absl::StrCat(".set ", later.input, "=", value, " at ", later.at)});
  }
  if (steering_.Busy()) view_.trainer->RequestBoundary();
}

Ack Boundary::Propose(Request request, int64_t step) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const TrainProgress& progress = view_.trainer->progress();
  if (closed_) return {false, progress.boundary.load(), "training has ended"};
  const uint64_t seq = request.seq;
  const auto known =
      std::find_if(waiting_.begin(), waiting_.end(), [seq](const Waiting& w) { return w.request.seq == seq; });
  if (known != waiting_.end()) waiting_.erase(known);
  waiting_.push_back({std::move(request), step, Waiting::Verdict::kNone});
  view_.trainer->RequestBoundary();
  changed_.notify_all();
  // Read after the request: a boundary that is not reached by now will hear of it.
  const int64_t done = progress.boundary.load();
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
  for (Waiting& w : waiting_) w.before_release = w.before_release || w.verdict == Waiting::Verdict::kAgreed;
  changed_.notify_all();
}

bool Boundary::paused() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return steering_.paused();
}

std::string Boundary::Watches() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::string text = steering_.watches().Text();
  for (size_t i = 1; i <= steering_.breaks().size(); ++i)
    absl::StrAppend(&text, "break ", steering_.breaks().text(static_cast<int32_t>(i)), "\n");
  for (const Waiting& w : waiting_) absl::StrAppend(&text, "waits: ", w.request.command.text, "\n");
  for (const Steering::Scheduled& s : steering_.scheduled()) absl::StrAppend(&text, "waits: ", s.text, "\n");
  return text.empty() ? "nothing is watched\n" : text;
}

void Boundary::Close() {
  std::vector<Request> unanswered;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    closed_ = true;
    for (Waiting& w : waiting_) unanswered.push_back(std::move(w.request));
    waiting_.clear();
    steering_.Close(&unanswered);
    changed_.notify_all();
  }
  for (const Request& r : unanswered) outlet_.answer(r, absl::FailedPreconditionError("training has ended"));
}

// One line of events.jsonl, and of the checkpoints that follow.
void Boundary::Record(const Request& request, int64_t step) {
  const std::string line =
      absl::StrFormat(R"({"step":%d,"time":%d,"by":%s,"command":%s})", step, static_cast<int64_t>(std::time(nullptr)),
                      Dump(request.who), Dump(request.command.text));
  view_.trainer->AddIntervention(line);
  if (events_ == nullptr) return;
  events_->AppendLines(absl::StrCat(line, "\n"));
  events_->Flush();
}

// ------------------------------------------------------------------------------------------------- between steps

Status Boundary::AtBoundary(const TrainState& state) {
  Lock lock(mutex_);
  steering_.watches().values();  // of the plan that training began with
  if (state.step != seen_step_) {
    seen_step_ = state.step;
    steering_.watches().Report(state);
    // Ranks that train together have agreed on it after the step.
    if (const int32_t hit = view_.ranks == 1 ? FindHit(state) : 0; hit > 0) {
      steering_.breaks().Remove(hit);
      steering_.Pause();
    }
    steering_.profiling().AddStep(state);
    steering_.TellScheduled(state.step);
    if (steering_.PauseIsDue(state.step)) steering_.Pause();
  }
  RunDue(state, lock);
  if (steering_.paused()) Wait(state, lock);
  RETURN_IF_ERROR(steering_.watches().ShowWanted());
  if (!waiting_.empty() || steering_.Busy()) view_.trainer->RequestBoundary();
  steering_.profiling().LeaveBoundary();
  return absl::OkStatus();
}

// All ranks have the same breaks: with one for NaN each asks the others after each step.
StatusOr<bool> Boundary::AtLoss(const TrainState& state, bool bad) {
  if (!steering_.breaks().has_nan()) return bad;
  ASSIGN_OR_RETURN(const bool good, AllAgree(view_, !bad));
  if (good) return false;
  Lock lock(mutex_);
  steering_.watches().values();
  if (bad) {
    outlet_.event(0, absl::StrCat("break nan: rank ", view_.rank, ": the loss of step ", state.step, " is ", state.loss,
                                  ": paused; training ends at .resume"));
  }
  steering_.bad_loss_ = true;
  steering_.Pause();
  Wait(state, lock);
  steering_.bad_loss_ = false;
  return true;
}

int32_t Boundary::BreakHit(const TrainState& state) {
  const Lock lock(mutex_);
  // The end of an epoch comes after its last step: no step is judged twice, by breaks that were set since then.
  return std::exchange(judged_step_, state.step) == state.step ? 0 : FindHit(state);
}

Status Boundary::PauseNext(const TrainState& state, int32_t hit) {
  const Lock lock(mutex_);
  // Another rank may have sent it.
  if (hit < 1 || static_cast<size_t>(hit) > steering_.breaks().size()) {
    return absl::InternalError(absl::StrCat("the ranks agreed to pause at break ", hit, " after step ", state.step,
                                            ", but this rank has ", steering_.breaks().size(), " breaks"));
  }
  steering_.PauseAt(state.step);
  steering_.breaks().Remove(hit);
  view_.trainer->RequestBoundary();
  return absl::OkStatus();
}

// Until a client resumes training, or it is to stop. Ranks that train together leave a pause when rank 0 says so: one
// that left by itself would not carry out what the others still agree on here.
void Boundary::Wait(const TrainState& state, Lock& lock) {
  view_.print("");
  steering_.AnswerPause(state.step);
  view_.trainer->progress().Enter(TrainProgress::Phase::kPaused);
  bool asked = false;
  while (steering_.paused() && released_ < state.step) {
    if (view_.trainer->stop_requested()) {
      if (view_.ranks == 1) break;
      if (!std::exchange(asked, true)) outlet_.leaves(state.step);
    }
    // A signal that asks to stop wakes nobody.
    changed_.wait_for(lock, std::chrono::milliseconds(100));
    RunDue(state, lock);
    if (steering_.bad_loss() && steering_.pause_is_to_come()) steering_.Continue();
  }
  steering_.Continue();
}

bool Boundary::Due(const Waiting& w, const TrainState& state) const {
  if (w.verdict == Waiting::Verdict::kDropped) return true;
  // All ranks pause after the same step: what is agreed on can be done now.
  const bool pause_lasts = released_ < state.step || w.before_release;
  if (steering_.paused() && w.verdict == Waiting::Verdict::kAgreed && pause_lasts) return true;
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
  const CommandDef& def = *request.command.def;
  StatusOr<Answer> answer = def.between_steps(steering_, request, state, &later);
  if (answer.ok() && def.writes) Record(request, state.step);
  // A step whose loss is NaN is not kept.
  if (answer.ok() && def.kept && view_.keep && !steering_.bad_loss()) {
    const Status kept = view_.keep();
    if (!kept.ok()) answer = kept;
  }
  if (!answer.ok() || !later) outlet_.answer(request, answer);
}

// The clients are told.
int32_t Boundary::FindHit(const TrainState& state) const {
  const int32_t hit = steering_.breaks().FindHit(state);
  if (hit > 0) {
    outlet_.event(0,
                  absl::StrFormat("break %s: paused at step %d, loss %.8g%s", steering_.breaks().text(hit), state.step,
                                  state.loss, view_.ranks == 1 ? "" : absl::StrCat(" on rank ", view_.rank)));
  }
  return hit;
}

}  // namespace mslua::endpoint
