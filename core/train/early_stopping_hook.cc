#include "core/train/early_stopping_hook.h"

#include "absl/strings/str_cat.h"

namespace mslua {

// Its process, or its user, may have ended a run between the request and the end.
Status EarlyStoppingHook::AtBegin(const TrainState&) {
  ended_ = ended();
  if (ended_) progress_->Stop();
  return absl::OkStatus();
}

Status EarlyStoppingHook::AtEpochEnd(const TrainState& s) {
  ASSIGN_OR_RETURN(const Monitor::Verdict verdict, monitor_.Judge());
  if (verdict == Monitor::Verdict::kBetter) {
    worse_ = 0;
    ended_ = false;
    return absl::OkStatus();
  }
  if (verdict == Monitor::Verdict::kNothingNew) {
    if (monitor_.any()) ++worse_;
    return absl::OkStatus();
  }
  if (++worse_ >= patience_) {
    progress_->console->Line(absl::StrCat(
        "early stopping: epoch ", s.epoch, ", ", monitor_.name(), std::isnan(monitor_.now()) ? " is NaN and" : "",
        " has not improved for ", worse_, " epochs (", monitor_.smaller() ? "smaller" : "greater", " is better)"));
    ended_ = true;
    progress_->Stop();
  }
  return absl::OkStatus();
}

void EarlyStoppingHook::SaveCounters(Counters* counters) const {
  monitor_.SaveCounters(counters);
  (*counters)[absl::StrCat(kKey, ".worse")] = static_cast<double>(worse_);
  if (ended_) (*counters)[absl::StrCat(kKey, ".ended")] = 1;
}

void EarlyStoppingHook::RestoreCounters(const Counters& counters) {
  monitor_.RestoreCounters(counters);
  worse_ = static_cast<int64_t>(CounterOf(counters, absl::StrCat(kKey, ".worse"), 0));
  ended_ = CounterOf(counters, absl::StrCat(kKey, ".ended"), 0) != 0;
}

}  // namespace mslua
