#include "core/train/loss_scale_hook.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"

namespace mslua {

Status LossScaleHook::AtStep(const TrainState& s) {
  if (s.step == 0 || seen_ == s.step) return absl::OkStatus();
  seen_ = s.step;
  const bool skipped = *progress_->trainer->executable()->Output(finite_).as<float>() < 0.5f;
  if (skipped) progress_->trainer->CountSkippedStep();
  ++steps_;
  skipped_ += skipped ? 1 : 0;
  if (!dynamic_) return absl::OkStatus();
  if (skipped) {
    scale_ = std::max(1.0, scale_ / factor_);
    good_ = 0;
  } else if (++good_ >= window_) {
    // Never infinite, which no division would undo: gradients that are zero let it rise without end.
    if (scale_ * factor_ <= std::numeric_limits<float>::max()) scale_ *= factor_;
    good_ = 0;
  }
  return absl::OkStatus();
}

void LossScaleHook::AtEnd(const TrainState&, const Status&) {
  if (2 * skipped_ <= steps_) return;
  progress_->console->Line(absl::StrCat("loss scale: ", skipped_, " of ", steps_,
                                        " steps updated nothing: their gradients were infinite or NaN"));
}

void LossScaleHook::SaveCounters(Counters* counters) const {
  (*counters)["loss_scale.steps"] = static_cast<double>(steps_);
  (*counters)["loss_scale.skipped"] = static_cast<double>(skipped_);
  if (!dynamic_) return;
  (*counters)["loss_scale.value"] = scale_;
  (*counters)["loss_scale.good"] = static_cast<double>(good_);
}

void LossScaleHook::RestoreCounters(const Counters& counters) {
  steps_ = static_cast<int64_t>(CounterOf(counters, "loss_scale.steps", 0));
  skipped_ = static_cast<int64_t>(CounterOf(counters, "loss_scale.skipped", 0));
  if (!dynamic_) return;
  scale_ = CounterOf(counters, "loss_scale.value", scale_);
  good_ = static_cast<int64_t>(CounterOf(counters, "loss_scale.good", 0));
}

}  // namespace mslua
