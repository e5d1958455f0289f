#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/schedule/define.h"

namespace mslua {

MSLUA_SCHEDULE(piecewise_constant_lr) {
  using Kind = ScheduleField::Kind;
  ScheduleDef def("piecewise_constant_lr");
  def.Doc("learning_rates[i] up to step milestone[i]; the last one stays.");
  def.Field({"milestone", Kind::kIntegers, "steps, ascending", AtLeast(1), {}, false, ""});
  def.Field({"learning_rates", Kind::kNumbers, "a rate for each milestone", Above(0), {}, false, ""});
  def.Check([](const ScheduleSettings& s) -> Status {
    const std::vector<double>&milestones = s.List("milestone"), &rates = s.List("learning_rates");
    if (milestones.size() != rates.size() || rates.empty()) {
      return absl::InvalidArgumentError(absl::StrCat("piecewise_constant_lr: ", milestones.size(), " milestones and ",
                                                     rates.size(), " learning_rates: one each"));
    }
    for (size_t i = 1; i < milestones.size(); ++i) {
      if (milestones[i] <= milestones[i - 1]) {
        return absl::InvalidArgumentError(absl::StrCat(
            "piecewise_constant_lr: milestone: expected ascending steps, got {", absl::StrJoin(milestones, ", "), "}"));
      }
    }
    return absl::OkStatus();
  });
  def.Highest([](const ScheduleSettings& s) {
    return *std::max_element(s.List("learning_rates").begin(), s.List("learning_rates").end());
  });
  def.Rate([](const ScheduleSettings& s, int64_t step) {
    const std::vector<double>&milestones = s.List("milestone"), &rates = s.List("learning_rates");
    for (size_t i = 0; i < milestones.size(); ++i) {
      if (static_cast<double>(step) < milestones[i]) return rates[i];
    }
    return rates.back();
  });
  return def;
}

}  // namespace mslua
