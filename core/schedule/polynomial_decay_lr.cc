#include <algorithm>
#include <cmath>

#include "core/schedule/define.h"

namespace mslua {

MSLUA_SCHEDULE(polynomial_decay_lr) {
  ScheduleDef def("polynomial_decay_lr");
  def.Doc("(learning_rate - end_learning_rate) (1 - e / decay_epoch)^power + end_learning_rate.");
  def.Number("learning_rate", Above(0), "the first rate").Number("end_learning_rate", AtLeast(0), "the last rate");
  def.Steps();
  def.Field({"decay_epoch", ScheduleField::Kind::kInteger, "epochs of the decay; nil: all", AtLeast(1), {}, true, ""});
  def.Number("power", 1, Above(0), "1: linear");
  def.Highest(
      [](const ScheduleSettings& s) { return std::max(s.Number("learning_rate"), s.Number("end_learning_rate")); });
  def.Rate([](const ScheduleSettings& s, int64_t step) {
    const double high = s.Number("learning_rate"), low = s.Number("end_learning_rate");
    return (high - low) * std::pow(1 - ShareOfEpochs(s, step), s.Number("power")) + low;
  });
  return def;
}

}  // namespace mslua
