// Learning rate schedules in Lua's words.
#pragma once

#include "core/schedule/declare/schedule.h"
#include "lua/callback.h"
#include "lua/object.h"

namespace mslua {

// A number, or a table {kind =, a value for each field}; kind is "constant", with the field value, or a schedule of
// core/schedule.
StatusOr<Schedule> ReadSchedule(lua_State* L, int index);

// The rate of `step`, from 0, by a Lua function of the step and the epoch, both from 1. InvalidArgument: it is no
// finite number, at least 0.
StatusOr<double> CallRate(Session& session, const Callback& rate, int64_t step, int64_t epoch);

// Entries of the module: core.schedules, core.schedule_value, core.schedule_at.
void OpenSchedules(lua_State* L);

}  // namespace mslua
