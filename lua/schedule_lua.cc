#include "lua/schedule_lua.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace mslua {
namespace {

StatusOr<std::vector<double>> FieldNumbers(lua_State* L, int index, const char* name) {
  const StackGuard guard(L);
  std::vector<double> out;
  lua_getfield(L, index, name);
  for (int i = 1; lua_type(L, -1) == LUA_TTABLE && i <= static_cast<int>(lua_objlen(L, -1)); ++i) {
    lua_rawgeti(L, -1, i);
    ASSIGN_OR_RETURN(const double v, ReadNumber(L, -1, absl::StrCat(name, "[", i, "]")));
    out.push_back(v);
    lua_pop(L, 1);
  }
  return out;
}

}  // namespace

StatusOr<Schedule> ReadSchedule(lua_State* L, int index) {
  const StackGuard guard(L);
  index = AbsoluteIndex(L, index);
  if (lua_type(L, index) == LUA_TNUMBER) return Schedule::Constant(lua_tonumber(L, index));
  if (lua_type(L, index) != LUA_TTABLE)
    return absl::InvalidArgumentError(absl::StrCat("schedule: expected a table, got ", Describe(L, index)));
  Schedule s;
  ASSIGN_OR_RETURN(const std::string kind, FieldString(L, index, "kind", "constant"));
  ASSIGN_OR_RETURN(s.kind, ParseScheduleKind(kind));
  for (const auto& [name, field] : {std::make_pair("value", &s.value),
                                    {"low", &s.low},
                                    {"rate", &s.rate},
                                    {"power", &s.power},
                                    {"pct", &s.pct},
                                    {"div", &s.div},
                                    {"final_div", &s.final_div},
                                    {"warmup_from", &s.warmup_from}}) {
    ASSIGN_OR_RETURN(*field, FieldNumber(L, index, name, *field));
  }
  for (const auto& [name, field] :
       {std::make_pair("period", &s.period), {"total", &s.total}, {"warmup_steps", &s.warmup_steps}}) {
    ASSIGN_OR_RETURN(*field, FieldInt(L, index, name, *field));
  }
  ASSIGN_OR_RETURN(s.rates, FieldNumbers(L, index, "rates"));
  ASSIGN_OR_RETURN(const std::vector<double> milestones, FieldNumbers(L, index, "milestones"));
  for (double m : milestones) s.milestones.push_back(static_cast<int64_t>(m));
  RETURN_IF_ERROR(s.Check());
  return s;
}

}  // namespace mslua
