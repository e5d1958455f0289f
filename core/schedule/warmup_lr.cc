#include "core/schedule/define.h"

namespace mslua {

MSLUA_SCHEDULE(warmup_lr) {
  using Kind = ScheduleField::Kind;
  ScheduleDef def("warmup_lr");
  def.Doc(
      "Rises linearly from warmup_from over warmup_epoch epochs (steps, when step_per_epoch is 1), then continues with "
      "learning_rate, a number or another schedule, whose own steps begin there. Of n steps, step i (from 0) has the "
      "rate warmup_from + (learning_rate - warmup_from) (i + 1) / n: the first is above warmup_from, the last is "
      "learning_rate.");
  def.Field({"learning_rate", Kind::kRate, "what follows", Above(0), {}, false, ""});
  def.Field({"total_step", Kind::kInteger, "MindSpore's; it changes nothing", AtLeast(1), {}, true, ""});
  def.Integer("step_per_epoch", 1, AtLeast(1), "steps of an epoch");
  def.Integer("warmup_epoch", AtLeast(1), "epochs of the rise");
  def.Number("warmup_from", 0, AtLeast(0), "where the rise begins");
  def.Check([](const ScheduleSettings& s) -> Status {
    if (s.inner->def != nullptr && s.inner->def->name == "warmup_lr")
      return absl::InvalidArgumentError("warmup_lr: learning_rate has a warm-up already");
    constexpr int64_t kMostSteps = int64_t{1} << 53;
    if (s.Int("step_per_epoch") > kMostSteps / s.Int("warmup_epoch"))
      return absl::InvalidArgumentError("warmup_lr: warmup_epoch * step_per_epoch: expected at most 2^53 steps");
    return absl::OkStatus();
  });
  def.Highest([](const ScheduleSettings& s) { return s.inner->highest(); });
  def.Rate([](const ScheduleSettings& s, int64_t step) {
    const int64_t rise = s.Int("warmup_epoch") * s.Int("step_per_epoch");
    if (step >= rise) return s.inner->At(step - rise);
    const double from = s.Number("warmup_from"), to = s.inner->At(0);
    return from + (to - from) * static_cast<double>(step + 1) / static_cast<double>(rise);
  });
  return def;
}

}  // namespace mslua
