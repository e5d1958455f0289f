#include "lua/trace_kind.h"

#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lua/op_call.h"
#include "lua/tensor_lua.h"
#include "lua/tensor_methods.h"
#include "lua/trace_lua.h"

namespace mslua {
namespace {

StatusOr<int> PushScope(lua_State* L, Session& session) {
  ASSIGN_OR_RETURN(std::string name, ReadString(L, 1, "push_scope"));
  if (session.trace != nullptr) session.trace->PushScope(std::move(name));
  return 0;
}
StatusOr<int> PopScope(lua_State*, Session& session) {
  if (session.trace != nullptr) session.trace->PopScope();
  return 0;
}
// core.print(value, what?): of a traced value when the graph has run, else now.
StatusOr<int> PrintValue(lua_State* L, Session& session) {
  std::string what;
  if (!lua_isnoneornil(L, 2)) {
    ASSIGN_OR_RETURN(what, ReadString(L, 2, "print: name"));
  }
  ASSIGN_OR_RETURN(const auto type, OperandType(L, session, 1));
  if (!type.has_value())
    return absl::InvalidArgumentError(absl::StrCat("print: expected a tensor, got ", Describe(L, 1)));
  if (session.trace != nullptr) {
    ASSIGN_OR_RETURN(const Value value, OperandValue(session, L, 1, DType::kF32));
    session.trace->Print(value, std::move(what));
    return 0;
  }
  ASSIGN_OR_RETURN(const Tensor t, ReadTensor(session, L, 1, absl::nullopt, "print"));
  std::printf("%s%s%s%s%s\n", session.prefix.c_str(), what.c_str(), what.empty() ? "" : " ", ToString(t.type).c_str(),
              absl::StrCat(t.type.rank() == 0 ? ": " : ":\n", TensorText(t.view())).c_str());
  return 0;
}
StatusOr<int> PushStage(lua_State* L, Session& session) {
  ASSIGN_OR_RETURN(const int64_t stage, ReadInt(L, 1, "push_stage"));
  if (session.trace != nullptr) session.trace->PushStage(static_cast<int>(stage));
  return 0;
}
StatusOr<int> PopStage(lua_State*, Session& session) {
  if (session.trace != nullptr) session.trace->PopStage();
  return 0;
}
StatusOr<int> PushRegion(lua_State*, Session& session) {
  if (session.trace != nullptr) session.trace->PushRegion();
  return 0;
}
StatusOr<int> PopRegion(lua_State*, Session& session) {
  if (session.trace != nullptr) session.trace->PopRegion();
  return 0;
}
// core.set_amp(dtype or nil) of the nodes that follow; gives what was before.
StatusOr<int> SetAmp(lua_State* L, Session& session) {
  if (session.trace == nullptr) return absl::FailedPreconditionError("set_amp outside a trace");
  absl::optional<DType> amp;
  if (!lua_isnoneornil(L, 1)) {
    ASSIGN_OR_RETURN(amp, ReadDType(L, 1, "set_amp"));
  }
  const absl::optional<DType> before = session.trace->amp();
  session.trace->SetAmp(amp);
  if (before)
    PushString(L, LongName(*before));
  else
    lua_pushnil(L);
  return 1;
}
StatusOr<int> IsTracing(lua_State* L, Session& session) {
  lua_pushboolean(L, session.trace != nullptr);
  return 1;
}
// core.is_global(): whether the graph that is traced is that of all ranks together.
StatusOr<int> IsGlobal(lua_State* L, Session& session) {
  lua_pushboolean(L, session.trace != nullptr && session.trace->sharded());
  return 1;
}
// Whether each cell says whether it trains: in calls and in gradients, not in compiled steps and evaluations.
bool FollowsCells(const Session& session) { return session.trace == nullptr || session.trace->follows_cells(); }

// What set_train has said of a cell; none: it has not been called.
absl::optional<bool> ReadTold(lua_State* L) {
  if (!lua_isboolean(L, 1)) return absl::nullopt;
  return lua_toboolean(L, 1) != 0;
}

// Whether a cell trains of which set_train has said so.
bool Trains(const Session& session, absl::optional<bool> told) {
  if (FollowsCells(session)) return session.training_of_all.value_or(told.value_or(false));
  return session.trace->training() && (!session.trace->heeds_cells() || told.value_or(true));
}

// core.training(): of the cell that is called. core.training(told): of one of which set_train has said so, or nil.
StatusOr<int> Training(lua_State* L, Session& session) {
  const Trace* const trace = session.trace;
  bool on = trace == nullptr ? session.training : trace->training() && !trace->cell_evaluates();
  if (FollowsCells(session)) on = session.training_of_all.value_or(on);
  lua_pushboolean(L, lua_gettop(L) > 0 ? Trains(session, ReadTold(L)) : on);
  return 1;
}
// core.set_training(told): of the cell that is called, of which set_train has said so, or nil. Gives what core.training
// gave before, or nil where that is the same for all cells.
StatusOr<int> SetTraining(lua_State* L, Session& session) {
  Trace* const trace = session.trace;
  const bool on = Trains(session, ReadTold(L)), follows = FollowsCells(session);
  if (follows ? session.training_of_all.has_value() : !trace->heeds_cells()) {
    lua_pushnil(L);
  } else if (!follows) {
    lua_pushboolean(L, !trace->cell_evaluates());
    trace->SetCellEvaluates(!on);
  } else if (trace != nullptr) {
    lua_pushboolean(L, trace->training());
    trace->SetTraining(on);
  } else {
    lua_pushboolean(L, session.training);
    session.training = on;
  }
  return 1;
}
// core.force_training(on or nil): of all cells that do not train under train; gives what was before.
StatusOr<int> ForceTraining(lua_State* L, Session& session) {
  absl::optional<bool> all;
  if (!lua_isnoneornil(L, 1)) {
    ASSIGN_OR_RETURN(all, ReadBool(L, 1, "force_training"));
  }
  const absl::optional<bool> before = std::exchange(session.training_of_all, all);
  if (before)
    lua_pushboolean(L, *before);
  else
    lua_pushnil(L);
  return 1;
}

StatusOr<int> ValueIndex(lua_State* L, Session& session) {
  const auto* v = ToObject<TracedValue>(L, 1);
  if (v == nullptr || session.trace == nullptr || v->trace_id != session.trace->id()) {
    return EndedTrace();
  }
  if (lua_type(L, 2) == LUA_TSTRING) return GetTensorField(L, session.trace->g().TypeOf(v->value));
  return IndexOperand(L, session);
}

StatusOr<int> ValueToText(lua_State* L, Session& session) {
  const auto* v = ToObject<TracedValue>(L, 1);
  if (v == nullptr || session.trace == nullptr || v->trace_id != session.trace->id())
    PushString(L, "value of an ended trace");
  else
    PushString(L, absl::StrCat("traced ", ToString(session.trace->g().TypeOf(v->value))));
  return 1;
}

StatusOr<int> NoAssignment(lua_State*, Session&) {
  return absl::InvalidArgumentError(
      "a traced value cannot be changed: ops.where(mask, value, x) and ops.update_slice(x, piece, start) give another "
      "one");
}

}  // namespace

void OpenTraces(lua_State* L) {
  NewKind<TracedValue>(L);
  SetOperandMetamethods(L);
  lua_pushcfunction(L, Entry<NoAssignment>);
  lua_setfield(L, -2, "__newindex");
  lua_pushcfunction(L, Entry<ValueIndex>);
  lua_setfield(L, -2, "__index");
  lua_pushcfunction(L, Entry<ValueToText>);
  lua_setfield(L, -2, "__tostring");
  lua_pop(L, 1);
  SetFunctions(L, {{"push_scope", Entry<PushScope>},
                   {"pop_scope", Entry<PopScope>},
                   {"print", Entry<PrintValue>},
                   {"push_stage", Entry<PushStage>},
                   {"pop_stage", Entry<PopStage>},
                   {"push_region", Entry<PushRegion>},
                   {"pop_region", Entry<PopRegion>},
                   {"set_amp", Entry<SetAmp>},
                   {"is_tracing", Entry<IsTracing>},
                   {"is_global", Entry<IsGlobal>},
                   {"training", Entry<Training>},
                   {"set_training", Entry<SetTraining>},
                   {"force_training", Entry<ForceTraining>}});
}

}  // namespace mslua
