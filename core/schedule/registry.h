// Every schedule of this build, sorted by name. The list is generated from the files of core/schedule.
#pragma once

#include <vector>

#include "absl/strings/string_view.h"
#include "core/schedule/declare/schedule.h"

namespace mslua {

// Made on first use, immutable afterwards; defined in core/schedule.
const std::vector<ScheduleDef>& Schedules();
// Null when there is no such schedule.
const ScheduleDef* FindSchedule(absl::string_view name);

}  // namespace mslua
