#include <cmath>

#include "core/schedule/define.h"

namespace mslua {

MSLUA_SCHEDULE(inverse_sqrt_decay_lr) {
  ScheduleDef def("inverse_sqrt_decay_lr");
  def.Doc(
      "learning_rate / sqrt(1 + step / decay_steps), steps from 0: behind nn.warmup_lr of decay_steps steps it is the "
      "schedule of the Transformer (Vaswani et al., 2017), whose rate falls with the root of all steps.");
  def.Number("learning_rate", Above(0), "the rate of the first step");
  def.Integer("decay_steps", AtLeast(1), "after three times as many steps the rate is half of it");
  def.Highest("learning_rate");
  def.Rate([](const ScheduleSettings& s, int64_t step) {
    return s.Number("learning_rate") / std::sqrt(1 + static_cast<double>(step) / s.Number("decay_steps"));
  });
  return def;
}

}  // namespace mslua
