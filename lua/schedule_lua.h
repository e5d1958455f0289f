// Learning rate schedules in Lua's words.
#pragma once

#include "core/schedule/declare/schedule.h"
#include "lua/object.h"

namespace mslua {

// A number, or a table {kind =, a value for each field}; kind is "constant", with the field value, or a schedule of
// core/schedule.
StatusOr<Schedule> ReadSchedule(lua_State* L, int index);

// Entries of the module: core.schedules, core.schedule_value, core.schedule_at.
void OpenSchedules(lua_State* L);

}  // namespace mslua
