// Learning rate schedules in Lua's words.
#pragma once

#include "core/train/schedule.h"
#include "lua/object.h"

namespace mslua {

// A number, or a table whose fields have the names of core/train/schedule.h.
StatusOr<Schedule> ReadSchedule(lua_State* L, int index);

}  // namespace mslua
