#include "core/schedule/declare/decay.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"

namespace mslua {

ScheduleDef DecaySchedule(std::string function, DecayOptions options) {
  ScheduleDef def(std::move(function));
  def.Doc(absl::StrCat(options.formula,
                       " at epoch e, which is the step when step_per_epoch is 1; after total_step steps the last one "
                       "stays."));
  def.Number("learning_rate", Above(0), "the first rate")
      .Number("decay_rate", Above(0), std::move(options.rate_doc))
      .Steps();
  def.Integer("decay_epoch", 1, AtLeast(1), std::move(options.decay_epoch_doc));
  def.Field(
      {"is_stair", ScheduleField::Kind::kBool, "change the rate at the end of a decay alone", {}, {0}, false, ""});
  const auto rate = [factor = std::move(options.factor)](const ScheduleSettings& s, int64_t step) {
    const int64_t epoch = std::min(step, s.Int("total_step") - 1) / s.Int("step_per_epoch");
    const double each = s.Number("decay_epoch"), decays = static_cast<double>(epoch) / each;
    return s.Number("learning_rate") *
           factor(s.Number("decay_rate"), s.Flag("is_stair") ? std::floor(decays) : decays, each);
  };
  // It falls, or rises, all the way.
  def.Highest([rate](const ScheduleSettings& s) { return std::max(rate(s, 0), rate(s, s.Int("total_step") - 1)); });
  return def.Rate(rate);
}

}  // namespace mslua
