#include "lua/optimizer_lua.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "core/base/text.h"
#include "core/optim/registry.h"
#include "lua/graph_lua.h"
#include "lua/limits_lua.h"
#include "lua/object.h"
#include "lua/tensor_lua.h"

namespace mslua {

template <>
struct KindName<std::shared_ptr<OptimizerHistory>> {
  static constexpr const char* value = "OptimizerHistory";
};

namespace {

using Kind = OptimizerField::Kind;

// The optimizer of the field `kind` of the table at `index`, among those that wrap another or those that do not.
StatusOr<const OptimizerDef*> ReadKind(lua_State* L, int index, absl::string_view what, bool wraps) {
  ASSIGN_OR_RETURN(const std::string kind, FieldString(L, index, "kind", ""));
  std::vector<std::string> kinds;
  for (const OptimizerDef& def : Optimizers()) {
    if (def.wraps == wraps) kinds.push_back(def.name);
  }
  const OptimizerDef* def = FindOptimizer(kind);
  if (def == nullptr || def->wraps != wraps) {
    return absl::InvalidArgumentError(absl::StrCat(what, ": kind is '", kind, "', expected one of ",
                                                   absl::StrJoin(kinds, ", "), DidYouMean(kind, kinds)));
  }
  return def;
}

Status CheckLimits(absl::string_view what, absl::string_view setting, double v, const Limits& limits) {
  const std::string problem = LimitProblem(limits, v);
  if (problem.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(what, ": ", setting, " is ", v, ", ", problem));
}

// A value for each setting of `def`.
StatusOr<Attrs> ReadSettings(lua_State* L, int index, const OptimizerDef& def, absl::string_view what) {
  Attrs settings;
  for (const OptimizerField& field : def.fields) {
    for (const std::string& setting : field.settings) {
      const AttrValue fallback = def.Default(setting);
      if (field.kind == Kind::kBool) {
        ASSIGN_OR_RETURN(const bool v, FieldBool(L, index, setting.c_str(), std::get<bool>(fallback)));
        settings.Set(setting, v);
        continue;
      }
      lua_getfield(L, index, setting.c_str());
      const bool missing = lua_isnil(L, -1) && field.fallback.empty();
      lua_pop(L, 1);
      if (missing) return absl::InvalidArgumentError(absl::StrCat(what, ": ", setting, " is missing"));
      ASSIGN_OR_RETURN(const double v, FieldNumber(L, index, setting.c_str(), std::get<double>(fallback)));
      RETURN_IF_ERROR(CheckLimits(what, setting, v, field.limits));
      settings.Set(setting, v);
    }
  }
  if (def.check) {
    const Status status = def.check(settings);
    if (!status.ok()) return absl::InvalidArgumentError(absl::StrCat(what, ": ", status.message()));
  }
  return settings;
}

std::vector<std::string> SettingsOf(const OptimizerDef& def) {
  std::vector<std::string> names;
  for (const OptimizerField& field : def.fields)
    names.insert(names.end(), field.settings.begin(), field.settings.end());
  return names;
}

// The field `wrapper`: {kind =, settings}; nil: none.
Status ReadWrapper(lua_State* L, int index, OptimizerRule* rule) {
  const StackGuard guard(L);
  lua_getfield(L, index, "wrapper");
  if (lua_isnil(L, -1)) return absl::OkStatus();
  if (lua_type(L, -1) != LUA_TTABLE)
    return absl::InvalidArgumentError(absl::StrCat("optimizer: wrapper: expected a table, got ", Describe(L, -1)));
  const int wrapper = lua_gettop(L);
  ASSIGN_OR_RETURN(rule->wrapper, ReadKind(L, wrapper, "optimizer: wrapper", /*wraps=*/true));
  std::vector<std::string> known = SettingsOf(*rule->wrapper);
  known.push_back("kind");
  RETURN_IF_ERROR(CheckFields(L, wrapper, "optimizer: wrapper", known));
  ASSIGN_OR_RETURN(rule->wrapper_settings, ReadSettings(L, wrapper, *rule->wrapper, "optimizer: wrapper"));
  return absl::OkStatus();
}

const char* KindText(Kind kind) {
  constexpr const char* kNames[] = {"params",       "rate",       "number",    "numbers", "boolean",
                                    "weight_decay", "loss_scale", "optimizer", "filter"};
  return kNames[static_cast<int>(kind)];
}

void PushStrings(lua_State* L, const std::vector<std::string>& list) {
  lua_newtable(L);
  for (size_t i = 0; i < list.size(); ++i) {
    PushString(L, list[i]);
    lua_rawseti(L, -2, static_cast<int>(i) + 1);
  }
}

// The default as Lua has it; nothing where there is none.
void SetDefault(lua_State* L, const OptimizerField& field) {
  if (field.fallback.empty()) return;
  if (field.kind == Kind::kBool) {
    lua_pushboolean(L, field.fallback[0] != 0);
  } else if (field.kind == Kind::kNumbers) {
    lua_newtable(L);
    for (size_t i = 0; i < field.fallback.size(); ++i) {
      lua_pushnumber(L, field.fallback[i]);
      lua_rawseti(L, -2, static_cast<int>(i) + 1);
    }
  } else {
    lua_pushnumber(L, field.fallback[0]);
  }
  lua_setfield(L, -2, "default");
}

void PushField(lua_State* L, const OptimizerField& field) {
  const auto set = [L](const char* key, absl::string_view text) {
    PushString(L, text);
    lua_setfield(L, -2, key);
  };
  lua_newtable(L);
  set("name", field.name);
  set("kind", KindText(field.kind));
  set("doc", field.doc);
  PushStrings(L, field.settings);
  lua_setfield(L, -2, "settings");
  SetDefault(L, field);
  SetLimits(L, field.limits);
  PushStrings(L, field.words);
  lua_setfield(L, -2, "words");
}

// core.optimizers()
StatusOr<int> ListOptimizers(lua_State* L, Session&) {
  lua_newtable(L);
  int n = 0;
  for (const OptimizerDef& def : Optimizers()) {
    lua_newtable(L);
    for (const auto& [key, text] : {std::pair("kind", def.name), {"class", def.class_name}, {"doc", def.doc}}) {
      PushString(L, text);
      lua_setfield(L, -2, key);
    }
    lua_pushboolean(L, def.wraps);
    lua_setfield(L, -2, "wraps");
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

// core.optimizer_problem(kind, settings): what is wrong with the settings together; nil: nothing
StatusOr<int> FindProblem(lua_State* L, Session&) {
  ASSIGN_OR_RETURN(const std::string kind, ReadString(L, 1, "kind"));
  const OptimizerDef* const def = FindOptimizer(kind);
  if (def == nullptr) return absl::InvalidArgumentError(absl::StrCat("there is no optimizer '", kind, "'"));
  const auto settings = ReadSettings(L, 2, *def, "");
  if (settings.ok()) return 0;
  PushString(L, absl::StripPrefix(settings.status().message(), ": "));
  return 1;
}

// core.optimizer_history()
StatusOr<int> MakeHistory(lua_State* L, Session&) {
  PushObject<std::shared_ptr<OptimizerHistory>>(L, std::make_shared<OptimizerHistory>());
  return 1;
}

StatusOr<std::shared_ptr<OptimizerHistory>> ReadHistory(lua_State* L) {
  const auto* history = ToObject<std::shared_ptr<OptimizerHistory>>(L, 1);
  if (history == nullptr) return absl::InvalidArgumentError("expected what core.optimizer_history gives");
  return *history;
}

// core.optimizer_states(history, parameters): what its optimizer keeps of these, by the names of checkpoints,
// "moments.fc.weight"
StatusOr<int> ListStates(lua_State* L, Session& session) {
  ASSIGN_OR_RETURN(const auto history, ReadHistory(L));
  ASSIGN_OR_RETURN(const auto parameters, ReadParameters(L, 2, "optimizer_states: parameters"));
  lua_newtable(L);
  for (const auto& [key, held] : session.state().optimizer_states) {
    if (held->state_for != history || held->state_kind == kAverageState) continue;
    for (const auto& p : parameters) {
      if (p->key != held->state_of) continue;
      if (!held->slice.whole.empty())
        return absl::FailedPreconditionError(
            "ranks have slices of the optimizer's state: the checkpoints of ms.Model save it");
      PushObject<std::shared_ptr<ParameterData>>(L, held);
      lua_setfield(L, -2, absl::StrCat(held->state_kind, ".", p->name).c_str());
    }
  }
  return 1;
}

// core.optimizer_counts(history): steps, updates, rate_scale, least_rate
StatusOr<int> GetCounts(lua_State* L, Session&) {
  ASSIGN_OR_RETURN(const auto history, ReadHistory(L));
  lua_pushnumber(L, static_cast<double>(history->steps));
  lua_pushnumber(L, static_cast<double>(history->updates));
  lua_pushnumber(L, history->rate_scale);
  lua_pushnumber(L, history->least_rate);
  return 4;
}

// core.set_optimizer_counts(history, steps, updates, rate_scale, least_rate)
StatusOr<int> SetCounts(lua_State* L, Session&) {
  ASSIGN_OR_RETURN(const auto history, ReadHistory(L));
  OptimizerHistory read = *history;  // whole or not at all
  ASSIGN_OR_RETURN(read.steps, ReadInt(L, 2, "steps"));
  ASSIGN_OR_RETURN(read.updates, ReadInt(L, 3, "updates"));
  ASSIGN_OR_RETURN(read.rate_scale, ReadNumber(L, 4, "rate_scale"));
  ASSIGN_OR_RETURN(read.least_rate, ReadNumber(L, 5, "least_rate"));
  *history = std::move(read);
  return 0;
}

}  // namespace

StatusOr<std::shared_ptr<OptimizerHistory>> FieldHistory(lua_State* L, int index, const std::string& what) {
  const StackGuard guard(L);
  lua_getfield(L, index, "history");
  if (lua_isnil(L, -1)) return std::make_shared<OptimizerHistory>();
  const auto* history = ToObject<std::shared_ptr<OptimizerHistory>>(L, -1);
  if (history == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, ": history: expected what core.optimizer_history gives, got ", Describe(L, -1)));
  }
  return *history;
}

Status ReadOptimizerRule(lua_State* L, int index, OptimizerRule* rule) {
  ASSIGN_OR_RETURN(rule->def, ReadKind(L, index, "optimizer", /*wraps=*/false));
  std::vector<std::string> known = SettingsOf(*rule->def);
  known.insert(known.end(), {"kind", "weight_decay", "groups", "wrapper", "history"});
  RETURN_IF_ERROR(CheckFields(L, index, "optimizer", known));
  ASSIGN_OR_RETURN(rule->settings, ReadSettings(L, index, *rule->def, "optimizer"));
  ASSIGN_OR_RETURN(rule->weight_decay, FieldNumber(L, index, "weight_decay", 0));
  RETURN_IF_ERROR(CheckLimits("optimizer", "weight_decay", rule->weight_decay, AtLeast(0)));
  return ReadWrapper(L, index, rule);
}

void OpenOptimizers(lua_State* L) {
  NewKind<std::shared_ptr<OptimizerHistory>>(L);
  lua_pop(L, 1);
  SetFunctions(L, {{"optimizers", Entry<ListOptimizers>},
                   {"optimizer_problem", Entry<FindProblem>},
                   {"optimizer_history", Entry<MakeHistory>},
                   {"optimizer_states", Entry<ListStates>},
                   {"optimizer_counts", Entry<GetCounts>},
                   {"set_optimizer_counts", Entry<SetCounts>}});
}

}  // namespace mslua
