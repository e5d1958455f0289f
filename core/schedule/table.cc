#include <algorithm>

#include "core/schedule/define.h"

namespace mslua {

// What a list of one rate a step becomes.
MSLUA_SCHEDULE(table) {
  ScheduleDef def("table");
  def.function = false;
  def.Doc("rates[step]; the last one stays.");
  def.Field({"rates", ScheduleField::Kind::kNumbers, "a rate for each step", AtLeast(0), {}, false, ""});
  def.Check([](const ScheduleSettings& s) -> Status {
    if (s.List("rates").empty()) return absl::InvalidArgumentError("learning rate: the list of rates is empty");
    return absl::OkStatus();
  });
  def.Highest(
      [](const ScheduleSettings& s) { return *std::max_element(s.List("rates").begin(), s.List("rates").end()); });
  def.Rate([](const ScheduleSettings& s, int64_t step) {
    const std::vector<double>& rates = s.List("rates");
    return rates[std::min<size_t>(static_cast<size_t>(step), rates.size() - 1)];
  });
  return def;
}

}  // namespace mslua
