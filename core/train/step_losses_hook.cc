#include "core/train/step_losses_hook.h"

#include <charconv>

#include "absl/strings/str_cat.h"

namespace mslua {
namespace {

constexpr char kSteps[] = "step_losses.steps", kSum[] = "step_losses.sum.";  // of the counters in a checkpoint

// The shortest float32 that reads back, as the console has it.
std::string Number(double value) {
  char text[32];
  return std::string(text, std::to_chars(text, text + sizeof text, static_cast<float>(value)).ptr);
}

}  // namespace

void StepLossesHook::PrintLine(const TrainState& s, const std::vector<std::pair<std::string, double>>& losses) const {
  std::string line = absl::StrCat("epoch: ", s.epoch + 1, " step: ", s.step_in_epoch, ", loss is ", Number(s.loss));
  const char* before = " (";
  for (const auto& [name, loss] : losses) {
    absl::StrAppend(&line, before, name, " ", Number(loss));
    before = ", ";
  }
  progress_->console->Line(line + ")");
}

Status StepLossesHook::AtStep(const TrainState& s) {
  if (s.step == 0 || counted_ == s.step) return absl::OkStatus();
  counted_ = s.step;
  const auto losses = StepLossesOf(*progress_->trainer->executable());
  if (log_every_ > 0 && s.step % log_every_ == 0) PrintLine(s, losses);
  ++steps_;
  sums_.resize(losses.size());
  for (size_t k = 0; k < losses.size(); ++k) sums_[k] = {losses[k].first, sums_[k].second + losses[k].second};
  SetMeans();
  return absl::OkStatus();
}

void StepLossesHook::SetMeans() const {
  for (const auto& [name, sum] : sums_) progress_->Set(name + "_loss", sum / static_cast<double>(steps_));
}

Status StepLossesHook::AtEpochBegin(const TrainState&) {
  steps_ = 0;
  sums_.clear();
  return absl::OkStatus();
}

void StepLossesHook::SaveCounters(Counters* counters) const {
  (*counters)[kSteps] = static_cast<double>(steps_);
  for (const auto& [name, sum] : sums_) (*counters)[kSum + name] = sum;
}

void StepLossesHook::RestoreCounters(const Counters& counters) {
  steps_ = static_cast<int64_t>(CounterOf(counters, kSteps, 0));
  sums_.clear();
  for (const auto& step : FindStepLosses(*progress_->trainer->executable()))
    sums_.emplace_back(step.first, CounterOf(counters, kSum + step.first, 0));
  if (steps_ > 0) SetMeans();
}

}  // namespace mslua
