#include <algorithm>
#include <cmath>

#include "core/schedule/define.h"

namespace mslua {

MSLUA_SCHEDULE(inverse_decay_lr) {
  ScheduleDef def("inverse_decay_lr");
  def.Doc(
      "learning_rate / (1 + decay_rate * e / decay_epoch) at epoch e, which is the step when step_per_epoch is 1; "
      "after "
      "total_step steps the last one stays.");
  def.Number("learning_rate", Above(0), "the first rate")
      .Number("decay_rate", Above(0), "what a decay adds to the divisor")
      .Steps();
  def.Integer("decay_epoch", 1, AtLeast(1), "epochs of a decay by decay_rate");
  def.Field(
      {"is_stair", ScheduleField::Kind::kBool, "change the rate at the end of a decay alone", {}, {0}, false, ""});
  def.Highest("learning_rate").Rate([](const ScheduleSettings& s, int64_t step) {
    const int64_t epoch = std::min(step, s.Int("total_step") - 1) / s.Int("step_per_epoch");
    const double decays = static_cast<double>(epoch) / s.Number("decay_epoch");
    const double e = s.Flag("is_stair") ? std::floor(decays) : decays;
    return s.Number("learning_rate") * (1 / (1 + s.Number("decay_rate") * e));
  });
  return def;
}

}  // namespace mslua
