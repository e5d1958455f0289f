#include "core/train/epoch_hook.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace mslua {

Status EpochHook::AtStep(const TrainState& s) {
  if (s.step == 0 || counted_ == s.step) return absl::OkStatus();
  counted_ = s.step;
  sum_ += s.loss;
  ++steps_;
  progress_->Set("loss", Mean());
  return absl::OkStatus();
}

Status EpochHook::AtEpochBegin(const TrainState&) {
  sum_ = 0;
  steps_ = 0;
  begun_ = std::chrono::steady_clock::now();
  return absl::OkStatus();
}

Status EpochHook::AtLastStep(const TrainState& s) {
  if (print_loss_ && s.step_in_epoch > 0) {
    progress_->console->Line(absl::StrCat("epoch: ", s.epoch + 1, ", mean loss of ", s.step_in_epoch, " of ",
                                          progress_->steps_per_epoch, " steps is ", Mean()));
  }
  return absl::OkStatus();
}

Status EpochHook::AtEpochEnd(const TrainState& s) {
  if (print_loss_) progress_->console->Line(absl::StrCat("epoch: ", s.epoch, ", mean loss is ", Mean()));
  if (time_every_ == 0 || s.epoch % time_every_ != 0) return absl::OkStatus();
  const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begun_).count();
  const auto steps = static_cast<double>(std::max<int64_t>(1, time_steps_ > 0 ? time_steps_ : steps_));
  progress_->console->Line(absl::StrFormat("epoch time: %.3f ms, per step time: %.3f ms", ms, ms / steps));
  return absl::OkStatus();
}

void EpochHook::SaveCounters(Counters* counters) const {
  (*counters)["epoch.loss_sum"] = sum_;
  (*counters)["epoch.steps"] = static_cast<double>(steps_);
}

void EpochHook::RestoreCounters(const Counters& counters) {
  sum_ = CounterOf(counters, "epoch.loss_sum", 0);
  steps_ = static_cast<int64_t>(CounterOf(counters, "epoch.steps", 0));
  if (steps_ > 0) progress_->Set("loss", Mean());
  begun_ = std::chrono::steady_clock::now();
}

}  // namespace mslua
