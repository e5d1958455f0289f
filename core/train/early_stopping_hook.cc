#include "core/train/early_stopping_hook.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace mslua {

Status EarlyStoppingHook::AtEpochEnd(const TrainState& s) {
  const double* v = progress_->Find(monitor_);
  // An epoch without an evaluation has nothing new to judge.
  const bool of_evaluation = evaluated_ && absl::StartsWith(monitor_, "eval_");
  if (of_evaluation && progress_->evaluations == seen_) {
    if (std::isfinite(best_)) ++worse_;
    return absl::OkStatus();
  }
  seen_ = progress_->evaluations;
  if (v == nullptr)
    return absl::InvalidArgumentError(absl::StrCat("EarlyStopping: nothing called '", monitor_, "' was measured"));
  if (sign_ * *v < best_ - min_delta_) {
    best_ = sign_ * *v;
    worse_ = 0;
    return absl::OkStatus();
  }
  if (++worse_ > patience_) {
    progress_->console->Line(absl::StrCat("early stopping: epoch ", s.epoch, ", ", monitor_,
                                          std::isnan(*v) ? " is NaN and" : "", " has not improved for ", worse_,
                                          " epochs"));
    progress_->Stop();
  }
  return absl::OkStatus();
}

void EarlyStoppingHook::SaveCounters(Counters* counters) const {
  if (std::isfinite(best_)) (*counters)["early_stopping.best"] = best_;
  (*counters)["early_stopping.worse"] = static_cast<double>(worse_);
}

void EarlyStoppingHook::RestoreCounters(const Counters& counters) {
  best_ = CounterOf(counters, "early_stopping.best", HUGE_VAL);
  worse_ = static_cast<int64_t>(CounterOf(counters, "early_stopping.worse", 0));
}

}  // namespace mslua
