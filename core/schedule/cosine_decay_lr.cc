#include <cmath>

#include "absl/strings/str_cat.h"
#include "core/schedule/define.h"

namespace mslua {

MSLUA_SCHEDULE(cosine_decay_lr) {
  ScheduleDef def("cosine_decay_lr");
  def.Doc(
      "min_lr + (max_lr - min_lr) (1 + cos(pi e / decay_epoch)) / 2 at epoch e, which is the step when step_per_epoch "
      "is 1.");
  def.Number("min_lr", AtLeast(0), "the last rate").Number("max_lr", Above(0), "the first rate").Steps();
  def.Field({"decay_epoch", ScheduleField::Kind::kInteger, "epochs of the decay; nil: all", AtLeast(1), {}, true, ""});
  def.Check([](const ScheduleSettings& s) -> Status {
    if (s.Number("min_lr") <= s.Number("max_lr")) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("min_lr, the last rate, is ", s.Number("min_lr"),
                                                   ", more than max_lr, the first, ", s.Number("max_lr")));
  });
  def.Highest("max_lr").Rate([](const ScheduleSettings& s, int64_t step) {
    const double low = s.Number("min_lr"), high = s.Number("max_lr");
    return low + (high - low) * (1 + std::cos(M_PI * ShareOfEpochs(s, step))) / 2;
  });
  return def;
}

}  // namespace mslua
