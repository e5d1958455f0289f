#include "core/schedule/registry.h"

namespace mslua {

std::vector<ScheduleDef> AllSchedules();  // generated

const std::vector<ScheduleDef>& Schedules() {
  static const auto* const all = new std::vector<ScheduleDef>(AllSchedules());
  return *all;
}

const ScheduleDef* FindSchedule(absl::string_view name) {
  for (const ScheduleDef& def : Schedules()) {
    if (def.name == name) return &def;
  }
  return nullptr;
}

}  // namespace mslua
