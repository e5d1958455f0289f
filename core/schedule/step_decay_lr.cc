#include <cmath>

#include "core/schedule/define.h"

namespace mslua {

MSLUA_SCHEDULE(step_decay_lr) {
  ScheduleDef def("step_decay_lr");
  def.Doc("learning_rate * decay_rate^floor(step / period).");
  def.Number("learning_rate", Above(0), "the first rate").Number("decay_rate", Above(0), "the factor of a decay");
  def.Field({"period", ScheduleField::Kind::kInteger, "steps between decays", AtLeast(1), {}, false, "steps"});
  // With a decay_rate above 1 there is no highest rate: groups' rates are shares of the first one.
  def.Highest("learning_rate").Rate([](const ScheduleSettings& s, int64_t step) {
    return s.Number("learning_rate") * std::pow(s.Number("decay_rate"), static_cast<double>(step / s.Int("period")));
  });
  return def;
}

}  // namespace mslua
