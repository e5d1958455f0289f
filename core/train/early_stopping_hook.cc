#include "core/train/early_stopping_hook.h"

#include "absl/strings/str_cat.h"

namespace mslua {

Status EarlyStoppingHook::AtEpochEnd(const TrainState& s) {
  ASSIGN_OR_RETURN(const Monitor::Verdict verdict, monitor_.Judge());
  if (verdict == Monitor::Verdict::kBetter) {
    worse_ = 0;
    return absl::OkStatus();
  }
  if (verdict == Monitor::Verdict::kNothingNew) {
    if (monitor_.any()) ++worse_;
    return absl::OkStatus();
  }
  if (++worse_ > patience_) {
    progress_->console->Line(absl::StrCat("early stopping: epoch ", s.epoch, ", ", monitor_.name(),
                                          std::isnan(monitor_.now()) ? " is NaN and" : "", " has not improved for ",
                                          worse_, " epochs"));
    progress_->Stop();
  }
  return absl::OkStatus();
}

void EarlyStoppingHook::SaveCounters(Counters* counters) const {
  monitor_.SaveCounters(counters);
  (*counters)[absl::StrCat(kKey, ".worse")] = static_cast<double>(worse_);
}

void EarlyStoppingHook::RestoreCounters(const Counters& counters) {
  monitor_.RestoreCounters(counters);
  worse_ = static_cast<int64_t>(CounterOf(counters, absl::StrCat(kKey, ".worse"), 0));
}

}  // namespace mslua
