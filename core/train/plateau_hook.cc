#include "core/train/plateau_hook.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace mslua {

namespace {

// A rate that was reduced to min_lr is its product with a quotient, which rounding may leave above it.
constexpr double kRounding = 1e-12;

}  // namespace

StatusOr<double> PlateauHook::Next() {
  ASSIGN_OR_RETURN(const Monitor::Verdict verdict, monitor_.Judge());
  if (rest_ > 0) {
    --rest_;
    worse_ = 0;
    return scale_;
  }
  if (verdict == Monitor::Verdict::kBetter) worse_ = 0;
  if (verdict == Monitor::Verdict::kNotBetter || (verdict == Monitor::Verdict::kNothingNew && monitor_.any())) ++worse_;
  if (verdict != Monitor::Verdict::kNotBetter || worse_ < options_.patience) return scale_;
  worse_ = 0;
  rest_ = options_.cooldown;
  const double now = progress_->trainer->ScalarNow(0);  // the rate of the last step
  if (now <= options_.min_lr * (1 + kRounding)) return scale_;
  return scale_ * std::max(options_.factor, options_.min_lr / now);
}

Status PlateauHook::AtEpochEnd(const TrainState& s) {
  ASSIGN_OR_RETURN(double next, Next());
  if (share_) {
    ASSIGN_OR_RETURN(next, share_(next));
  }
  if (next != scale_) {
    const double now = progress_->trainer->ScalarNow(0);
    progress_->console->Line(absl::StrFormat("epoch %d: %s has not improved: learning rate %.6g, was %.6g", s.epoch,
                                             monitor_.name(), now * next / scale_, now));
    scale_ = next;
  }
  return absl::OkStatus();
}

void PlateauHook::SaveCounters(Counters* counters) const {
  monitor_.SaveCounters(counters);
  (*counters)[absl::StrCat(kKey, ".scale")] = scale_;
  (*counters)[absl::StrCat(kKey, ".worse")] = static_cast<double>(worse_);
  (*counters)[absl::StrCat(kKey, ".rest")] = static_cast<double>(rest_);
}

void PlateauHook::RestoreCounters(const Counters& counters) {
  monitor_.RestoreCounters(counters);
  scale_ = CounterOf(counters, absl::StrCat(kKey, ".scale"), 1);
  worse_ = static_cast<int64_t>(CounterOf(counters, absl::StrCat(kKey, ".worse"), 0));
  rest_ = static_cast<int64_t>(CounterOf(counters, absl::StrCat(kKey, ".rest"), 0));
}

}  // namespace mslua
