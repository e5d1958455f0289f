#include "lua/schedule_lua.h"

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/text.h"
#include "core/schedule/registry.h"
#include "lua/limits_lua.h"
#include "lua/session.h"
#include "lua/tensor_lua.h"

namespace mslua {
namespace {

using Kind = ScheduleField::Kind;

StatusOr<std::vector<double>> ReadNumbers(lua_State* L, int index, const std::string& name) {
  std::vector<double> out;
  if (lua_type(L, index) != LUA_TTABLE)
    return absl::InvalidArgumentError(absl::StrCat("schedule: ", name, ": expected a list, got ", Describe(L, index)));
  for (int i = 1; i <= static_cast<int>(lua_objlen(L, index)); ++i) {
    lua_rawgeti(L, index, i);
    ASSIGN_OR_RETURN(const double v, ReadNumber(L, -1, absl::StrCat(name, "[", i, "]")));
    out.push_back(v);
    lua_pop(L, 1);
  }
  return out;
}

// The value on the top of the stack, which is not nil.
Status ReadField(lua_State* L, const ScheduleField& field, ScheduleSettings* settings) {
  const int top = lua_gettop(L);
  switch (field.kind) {
    case Kind::kRate: {
      ASSIGN_OR_RETURN(Schedule inner, ReadSchedule(L, top));
      settings->inner = std::make_shared<Schedule>(std::move(inner));
      return absl::OkStatus();
    }
    case Kind::kBool: {
      ASSIGN_OR_RETURN(const bool v, ReadBool(L, top, field.name));
      settings->Set(field.name, {v ? 1.0 : 0.0});
      return absl::OkStatus();
    }
    case Kind::kNumbers:
    case Kind::kIntegers: {
      ASSIGN_OR_RETURN(std::vector<double> list, ReadNumbers(L, top, field.name));
      settings->Set(field.name, std::move(list));
      return absl::OkStatus();
    }
    case Kind::kNumber:
    case Kind::kInteger: {
      ASSIGN_OR_RETURN(const double v, ReadNumber(L, top, field.name));
      settings->Set(field.name, {v});
      return absl::OkStatus();
    }
  }
  return absl::OkStatus();
}

StatusOr<const ScheduleDef*> ReadDef(lua_State* L, int index) {
  ASSIGN_OR_RETURN(const std::string kind, FieldString(L, index, "kind", "constant"));
  if (kind == "constant") return static_cast<const ScheduleDef*>(nullptr);
  const ScheduleDef* def = FindSchedule(kind);
  if (def != nullptr) return def;
  std::vector<std::string> known;
  for (const ScheduleDef& d : Schedules()) known.push_back(d.name);
  return absl::InvalidArgumentError(absl::StrCat("unknown schedule '", kind, "'", DidYouMean(kind, known)));
}

const char* KindText(Kind kind) {
  constexpr const char* kNames[] = {"number", "integer", "boolean", "numbers", "integers", "number|schedule"};
  return kNames[static_cast<int>(kind)];
}

void SetDefault(lua_State* L, const ScheduleField& field) {
  if (field.fallback.empty()) return;
  if (field.kind == Kind::kBool)
    lua_pushboolean(L, field.fallback[0] != 0);
  else
    lua_pushnumber(L, field.fallback[0]);
  lua_setfield(L, -2, "default");
}

void PushField(lua_State* L, const ScheduleField& field) {
  lua_newtable(L);
  for (const auto& [key, text] : {std::pair("name", field.name),
                                  {"kind", std::string(KindText(field.kind))},
                                  {"doc", field.doc},
                                  {"unit", field.unit}}) {
    if (text.empty()) continue;
    PushString(L, text);
    lua_setfield(L, -2, key);
  }
  lua_pushboolean(L, field.optional || !field.fallback.empty());
  lua_setfield(L, -2, "optional");
  SetDefault(L, field);
  SetLimits(L, field.limits);
}

// core.schedules()
StatusOr<int> ListSchedules(lua_State* L, Session&) {
  lua_newtable(L);
  int n = 0;
  for (const ScheduleDef& def : Schedules()) {
    if (!def.function) continue;
    lua_newtable(L);
    for (const auto& [key, text] : {std::pair("name", def.name), {"doc", def.doc}}) {
      PushString(L, text);
      lua_setfield(L, -2, key);
    }
    lua_newtable(L);
    for (size_t i = 0; i < def.fields.size(); ++i) {
      PushField(L, def.fields[i]);
      lua_rawseti(L, -2, static_cast<int>(i) + 1);
    }
    lua_setfield(L, -2, "fields");
    lua_rawseti(L, -2, ++n);
  }
  return 1;
}

// core.schedule_value(schedule): its highest rate
StatusOr<int> HighestRate(lua_State* L, Session&) {
  ASSIGN_OR_RETURN(const Schedule schedule, ReadSchedule(L, 1));
  lua_pushnumber(L, schedule.highest());
  return 1;
}

// core.schedule_at(schedule, step)
StatusOr<int> RateAt(lua_State* L, Session&) {
  ASSIGN_OR_RETURN(const Schedule schedule, ReadSchedule(L, 1));
  ASSIGN_OR_RETURN(const int64_t step, ReadInt(L, 2, "at: step"));
  if (step < 1) return absl::InvalidArgumentError(absl::StrCat("at: steps count from 1, got ", step));
  lua_pushnumber(L, schedule.At(step - 1));
  return 1;
}

}  // namespace

StatusOr<double> CallRate(Session& session, const Callback& rate, int64_t step, int64_t epoch) {
  lua_State* const L = session.lua();
  const StackGuard guard(L);
  const RunningLua running(L, rate.written());
  rate.Push(L);
  lua_pushnumber(L, static_cast<double>(step + 1));
  lua_pushnumber(L, static_cast<double>(epoch));
  RETURN_IF_ERROR(session.Call(2, 1));
  const std::string where =
      rate.written() == nullptr ? "" : absl::StrCat(rate.written()->file, ":", rate.written()->line, ": ");
  if (lua_type(L, -1) != LUA_TNUMBER) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, "the learning rate's function should return a number, got ", Describe(L, -1)));
  }
  const double value = lua_tonumber(L, -1);
  if (std::isfinite(value) && value >= 0) return value;
  return absl::InvalidArgumentError(absl::StrCat(where, "the learning rate's function gave ", value, " for step ",
                                                 step + 1, ": expected a finite number, at least 0"));
}

StatusOr<Schedule> ReadSchedule(lua_State* L, int index) {
  const StackGuard guard(L);
  index = AbsoluteIndex(L, index);
  Schedule s;
  if (lua_type(L, index) == LUA_TNUMBER) {
    s.constant = lua_tonumber(L, index);
  } else if (lua_type(L, index) != LUA_TTABLE) {
    return absl::InvalidArgumentError(absl::StrCat("schedule: expected a table, got ", Describe(L, index)));
  } else {
    ASSIGN_OR_RETURN(s.def, ReadDef(L, index));
    if (s.def == nullptr) {
      ASSIGN_OR_RETURN(s.constant, FieldNumber(L, index, "value", 0));
    }
  }
  for (size_t i = 0; s.def != nullptr && i < s.def->fields.size(); ++i) {
    const ScheduleField& field = s.def->fields[i];
    lua_getfield(L, index, field.name.c_str());
    if (!lua_isnil(L, -1))
      RETURN_IF_ERROR(ReadField(L, field, &s.settings));
    else if (!field.fallback.empty())
      s.settings.Set(field.name, field.fallback);
    lua_pop(L, 1);
  }
  RETURN_IF_ERROR(s.Check());
  return s;
}

void OpenSchedules(lua_State* L) {
  SetFunctions(
      L, {{"schedules", Entry<ListSchedules>}, {"schedule_value", Entry<HighestRate>}, {"schedule_at", Entry<RateAt>}});
}

}  // namespace mslua
