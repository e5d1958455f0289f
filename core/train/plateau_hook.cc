#include "core/train/plateau_hook.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace mslua {

std::string PlateauHook::Changes(double next) const {
  const Trainer& trainer = *progress_->trainer;
  std::string text;
  for (size_t i = 0; i < trainer.scalars().size(); ++i) {
    const double now = trainer.ScalarNow(static_cast<int>(i));
    if (!trainer.scalars()[i].is_rate || !(now > options_.min_lr)) continue;
    const double then = std::max(now * next / trainer.rate_scale(), options_.min_lr);
    absl::StrAppend(&text, text.empty() ? "" : "; ", absl::StrFormat("%.6g, was %.6g", then, now));
  }
  return text;
}

StatusOr<double> PlateauHook::Next() {
  const double now = progress_->trainer->rate_scale();
  ASSIGN_OR_RETURN(const Monitor::Verdict verdict, monitor_.Judge());
  if (rest_ > 0) {
    --rest_;
    worse_ = 0;
    return now;
  }
  if (verdict == Monitor::Verdict::kBetter) worse_ = 0;
  if (verdict == Monitor::Verdict::kNotBetter || (verdict == Monitor::Verdict::kNothingNew && monitor_.any())) ++worse_;
  if (verdict != Monitor::Verdict::kNotBetter || worse_ < options_.patience) return now;
  worse_ = 0;
  rest_ = options_.cooldown;
  const double next = now * options_.factor;
  return Changes(next).empty() ? now : next;
}

Status PlateauHook::AtBegin(const TrainState&) {
  progress_->trainer->ReduceRates(progress_->trainer->rate_scale(), options_.min_lr);
  return absl::OkStatus();
}

Status PlateauHook::AtEpochEnd(const TrainState& s) {
  ASSIGN_OR_RETURN(double next, Next());
  if (share_) {
    ASSIGN_OR_RETURN(next, share_(next));
  }
  if (next == progress_->trainer->rate_scale()) return absl::OkStatus();
  progress_->console->Line(
      absl::StrCat("epoch ", s.epoch, ": ", monitor_.name(), " has not improved: learning rate ", Changes(next)));
  progress_->trainer->ReduceRates(next, options_.min_lr);
  return absl::OkStatus();
}

void PlateauHook::SaveCounters(Counters* counters) const {
  monitor_.SaveCounters(counters);
  (*counters)[absl::StrCat(kKey, ".scale")] = progress_->trainer->rate_scale();
  (*counters)[absl::StrCat(kKey, ".worse")] = static_cast<double>(worse_);
  (*counters)[absl::StrCat(kKey, ".rest")] = static_cast<double>(rest_);
}

void PlateauHook::RestoreCounters(const Counters& counters) {
  monitor_.RestoreCounters(counters);
  Trainer& trainer = *progress_->trainer;
  trainer.ReduceRates(CounterOf(counters, absl::StrCat(kKey, ".scale"), trainer.rate_scale()), options_.min_lr);
  worse_ = static_cast<int64_t>(CounterOf(counters, absl::StrCat(kKey, ".worse"), 0));
  rest_ = static_cast<int64_t>(CounterOf(counters, absl::StrCat(kKey, ".rest"), 0));
}

}  // namespace mslua
