#include "lua/parameter_kind.h"

#include <algorithm>
#include <new>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/text.h"
#include "core/step/parameter.h"
#include "lua/object.h"
#include "lua/session.h"
#include "lua/tensor_lua.h"
#include "lua/tensor_methods.h"
#include "lua/trace_lua.h"
#include "lua/whole_value.h"

namespace mslua {
namespace {

// Reads the initializer at `index`: a number, a tensor, a nested list, a name, or {name, field = ...}. A tensor
// or list also gives the type when `has_type` is false.
Status ReadInitializer(Session& session, lua_State* L, int index, bool has_type, TensorType* type, Initializer* init) {
  const StackGuard guard(L);
  index = AbsoluteIndex(L, index);
  if (lua_type(L, index) == LUA_TNUMBER) {
    init->kind = "constant";
    init->value = lua_tonumber(L, index);
    return absl::OkStatus();
  }
  bool named = lua_type(L, index) == LUA_TSTRING;
  if (named) lua_pushvalue(L, index);
  if (lua_type(L, index) == LUA_TTABLE) {
    lua_rawgeti(L, index, 1);
    named = lua_type(L, -1) == LUA_TSTRING;
  }
  if (!named) {
    ASSIGN_OR_RETURN(
        Tensor t, ReadTensor(session, L, index, has_type ? absl::optional<DType>(type->dtype) : absl::nullopt, "init"));
    if (has_type && t.type.shape != type->shape) {
      return absl::InvalidArgumentError(
          absl::StrCat("init: expected a value of shape ", ToString(type->shape), ", got ", ToString(t.type.shape)));
    }
    *type = t.type;
    init->kind = "tensor";
    init->constant = std::move(t);
    return absl::OkStatus();
  }
  init->kind = InitializerNamed(lua_tostring(L, -1));
  const std::string problem = InitializerProblem(init->kind);
  if (!problem.empty()) return absl::InvalidArgumentError(absl::StrCat("init: ", problem));
  if (lua_type(L, index) != LUA_TTABLE) return absl::OkStatus();
  RETURN_IF_ERROR(
      CheckFields(L, index, absl::StrCat("init '", init->kind, "'"),
                  {"sigma", "mean", "scale", "gain", "negative_slope", "a", "b", "value", "mode", "nonlinearity"}));
  // A bare number after the name is the initializer's first parameter.
  lua_rawgeti(L, index, 2);
  if (!lua_isnil(L, -1)) {
    ASSIGN_OR_RETURN(const double first, ReadNumber(L, -1, absl::StrCat("init '", init->kind, "'")));
    if (init->kind == "normal" || init->kind == "truncated_normal")
      init->sigma = first;
    else if (init->kind == "uniform")
      init->scale = first;
    else if (init->kind == "constant")
      init->value = first;
    else if (init->kind == "xavier_uniform" || init->kind == "xavier_normal")
      init->gain = first;
    else
      init->negative_slope = first;
  }
  for (const auto& [name, field] : {std::make_pair("sigma", &init->sigma),
                                    {"mean", &init->mean},
                                    {"scale", &init->scale},
                                    {"gain", &init->gain},
                                    {"negative_slope", &init->negative_slope},
                                    {"a", &init->a},
                                    {"b", &init->b},
                                    {"value", &init->value}}) {
    ASSIGN_OR_RETURN(*field, FieldNumber(L, index, name, *field));
  }
  ASSIGN_OR_RETURN(init->mode, FieldString(L, index, "mode", init->mode));
  ASSIGN_OR_RETURN(init->nonlinearity, FieldString(L, index, "nonlinearity", init->nonlinearity));
  if (init->mode != "fan_in" && init->mode != "fan_out") {
    return absl::InvalidArgumentError(absl::StrCat("init: mode is '", init->mode, "', expected fan_in or fan_out"));
  }
  if (init->nonlinearity != "leaky_relu" && init->nonlinearity != "relu") {
    return absl::InvalidArgumentError(
        absl::StrCat("init: nonlinearity is '", init->nonlinearity, "', expected leaky_relu or relu"));
  }
  return absl::OkStatus();
}

using ParameterHandle = std::shared_ptr<ParameterData>;

StatusOr<int64_t> ReadCommFusion(lua_State* L, int index, absl::string_view what) {
  ASSIGN_OR_RETURN(const int64_t id, ReadInt(L, index, what));
  if (id < 0) return absl::InvalidArgumentError(absl::StrCat(what, ": expected an integer, at least 0, got ", id));
  return id;
}

StatusOr<int> MakeParameter(lua_State* L, Session& session, const char* kind) {
  const bool state = absl::string_view(kind) == kState;
  RETURN_IF_ERROR(CheckFields(L, 1, state ? "state" : "Parameter",
                              {"name", "shape", "dtype", "init", "requires_grad", "saved", "layerwise_parallel",
                               "parallel_optimizer", "comm_fusion", "zero_row"}));
  auto p = std::make_shared<ParameterData>();
  p->kind = kind;
  p->made_at = session.Where();
  ASSIGN_OR_RETURN(p->name, FieldString(L, 1, "name", ""));
  lua_getfield(L, 1, "shape");
  const bool has_shape = !lua_isnil(L, -1);
  if (has_shape) {
    ASSIGN_OR_RETURN(p->type.shape, ReadShape(L, -1, absl::StrCat("Parameter '", p->name, "': shape")));
  }
  lua_getfield(L, 1, "dtype");
  const bool has_dtype = !lua_isnil(L, -1);
  if (has_dtype) {
    ASSIGN_OR_RETURN(p->type.dtype, ReadDType(L, -1, absl::StrCat("Parameter '", p->name, "': dtype")));
  }
  lua_getfield(L, 1, "init");
  if (!lua_isnil(L, -1)) {
    const DType dtype = p->type.dtype;
    const Status read = ReadInitializer(session, L, -1, has_shape, &p->type, &p->init);
    RETURN_IF_ERROR(Annotate(read, absl::StrCat("Parameter '", p->name, "'")));
    if (has_dtype && p->type.dtype != dtype) {
      ASSIGN_OR_RETURN(p->init.constant, CastTensor(session.allocator(), p->init.constant, dtype));
      p->type.dtype = dtype;
    }
  }
  if (!has_shape && p->init.kind != "tensor") {
    return absl::InvalidArgumentError(
        absl::StrCat("Parameter '", p->name, "': a shape is needed, or a tensor as its init"));
  }
  ASSIGN_OR_RETURN(p->requires_grad, FieldBool(L, 1, "requires_grad", !state && IsFloat(p->type.dtype)));
  ASSIGN_OR_RETURN(p->saved, FieldBool(L, 1, "saved", true));
  ASSIGN_OR_RETURN(p->layerwise_parallel, FieldBool(L, 1, "layerwise_parallel", false));
  ASSIGN_OR_RETURN(p->parallel_optimizer, FieldBool(L, 1, "parallel_optimizer", true));
  lua_getfield(L, 1, "comm_fusion");
  if (!lua_isnil(L, -1)) {
    ASSIGN_OR_RETURN(p->comm_fusion, ReadCommFusion(L, -1, absl::StrCat("Parameter '", p->name, "': comm_fusion")));
  }
  lua_getfield(L, 1, "zero_row");
  if (!lua_isnil(L, -1)) {
    ASSIGN_OR_RETURN(p->zero_row, ReadInt(L, -1, absl::StrCat("Parameter '", p->name, "': zero_row")));
  }
  PushObject<ParameterHandle>(L, p);
  lua_createtable(L, 0, 1);
  lua_getfield(L, 1, "init");
  lua_setfield(L, -2, "init");
  lua_setfenv(L, -2);
  return 1;
}

StatusOr<int> NewParameter(lua_State* L, Session& session) { return MakeParameter(L, session, kParameter); }
StatusOr<int> NewState(lua_State* L, Session& session) { return MakeParameter(L, session, kState); }

const std::vector<std::string>& Settable() {
  static const auto* names = new std::vector<std::string>{
      "name", "value", "requires_grad", "saved", "layerwise_parallel", "parallel_optimizer", "comm_fusion"};
  return *names;
}

// Whether a graph is traced that runs many times: what is read from memory now would be its value in all of them.
bool IsCompiled(const Session& session) { return session.trace != nullptr && !session.trace->follows_cells(); }

// In a trace: from here on the parameter is the operand at `index`.
StatusOr<int> AssignTraced(lua_State* L, Session& session, const ParameterHandle& p, int index) {
  if (session.trace == nullptr) return EndedTrace();
  ASSIGN_OR_RETURN(const Value value, OperandValue(session, L, index, p->type.dtype));
  RETURN_IF_ERROR(session.trace->Assign(p, value));
  return 0;
}

StatusOr<int> GetField(lua_State* L, Session& session) {
  const auto* handle = ToObject<ParameterHandle>(L, 1);
  if (handle == nullptr) return absl::InvalidArgumentError("expected a Parameter");
  ParameterData& p = **handle;
  if (lua_type(L, 2) == LUA_TSTRING) {
    const absl::string_view field = lua_tostring(L, 2);
    if (field == "name")
      PushString(L, p.name);
    else if (field == "requires_grad")
      lua_pushboolean(L, p.requires_grad);
    else if (field == "saved")
      lua_pushboolean(L, p.saved);
    else if (field == "layerwise_parallel")
      lua_pushboolean(L, p.layerwise_parallel);
    else if (field == "parallel_optimizer")
      lua_pushboolean(L, p.parallel_optimizer);
    else if (field == "comm_fusion")
      lua_pushnumber(L, static_cast<double>(p.comm_fusion));
    else if (field == "value" && IsCompiled(session)) {
      ASSIGN_OR_RETURN(const Value value, session.trace->ParameterValue(*handle));
      PushValue(L, *session.trace, session.trace->g().Op("stop_gradient", {value}));
    } else if (field == "value") {
      ASSIGN_OR_RETURN(Tensor value, WholeValue(session, p));
      PushObject<Tensor>(L, std::move(value));
    } else if (field == "init") {
      lua_getfenv(L, 1);
      lua_getfield(L, -1, "init");
    } else {
      return GetTensorField(L, p.type);
    }
    return 1;
  }
  return IndexOperand(L, session);
}

StatusOr<int> SetField(lua_State* L, Session& session) {
  const auto* handle = ToObject<ParameterHandle>(L, 1);
  if (handle == nullptr) return absl::InvalidArgumentError("expected a Parameter");
  ParameterData& p = **handle;
  ASSIGN_OR_RETURN(const std::string field, ReadString(L, 2, "field of a Parameter"));
  const std::string what = absl::StrCat("parameter '", p.name, "': ", field);
  if (field == "name") {
    ASSIGN_OR_RETURN(const std::string name, ReadString(L, 3, what));
    if (name.empty()) return absl::InvalidArgumentError(absl::StrCat(what, ": expected a name, got \"\""));
    p.name = name;
  } else if (field == "value" && (IsCompiled(session) || ToObject<TracedValue>(L, 3) != nullptr)) {
    return AssignTraced(L, session, *handle, 3);
  } else if (field == "value") {
    ASSIGN_OR_RETURN(const Tensor value, ReadTensor(session, L, 3, p.type.dtype, what));
    RETURN_IF_ERROR(SetValue(session.state(), p, value));
  } else if (field == "comm_fusion") {
    ASSIGN_OR_RETURN(p.comm_fusion, ReadCommFusion(L, 3, what));
  } else if (field == "requires_grad") {
    ASSIGN_OR_RETURN(const bool trained, ReadBool(L, 3, what));
    const auto* const training = session.training_parameters;
    if (trained != p.requires_grad && training != nullptr &&
        std::find(training->begin(), training->end(), *handle) != training->end()) {
      return absl::FailedPreconditionError(absl::StrCat(
          what, ": ms.Model trains the network, and its step is compiled: end model:train, set it, and call it again"));
    }
    p.requires_grad = trained;
  } else if (field == "saved") {
    ASSIGN_OR_RETURN(p.saved, ReadBool(L, 3, what));
  } else if (field == "layerwise_parallel") {
    ASSIGN_OR_RETURN(p.layerwise_parallel, ReadBool(L, 3, what));
  } else if (field == "parallel_optimizer") {
    ASSIGN_OR_RETURN(p.parallel_optimizer, ReadBool(L, 3, what));
  } else {
    return absl::InvalidArgumentError(
        absl::StrCat("parameter '", p.name, "' has no settable field '", field, "'", DidYouMean(field, Settable())));
  }
  return 0;
}

StatusOr<int> ParameterToText(lua_State* L, Session& session) {
  const auto* handle = ToObject<ParameterHandle>(L, 1);
  if (handle == nullptr) return absl::InvalidArgumentError("expected a Parameter");
  PushString(L, absl::StrCat("Parameter (name=", (*handle)->name, ", ", ToString((*handle)->type),
                             ", requires_grad=", (*handle)->requires_grad ? "true" : "false", ")"));
  return 1;
}

StatusOr<int> AssignParameter(lua_State* L, Session& session) {
  const auto* handle = ToObject<ParameterHandle>(L, 1);
  if (handle == nullptr)
    return absl::InvalidArgumentError(absl::StrCat("assign: expected a Parameter, got ", Describe(L, 1)));
  if (session.trace != nullptr) return AssignTraced(L, session, *handle, 2);
  ASSIGN_OR_RETURN(const Tensor value, ReadTensor(session, L, 2, (*handle)->type.dtype, "assign"));
  RETURN_IF_ERROR(SetValue(session.state(), **handle, value));
  return 0;
}

StatusOr<int> ListStore(lua_State* L, Session& session) {
  lua_newtable(L);
  int n = 0;
  for (const auto& entry : session.state().store.entries()) {
    lua_createtable(L, 0, 4);
    PushString(L, entry->name);
    lua_setfield(L, -2, "name");
    PushInts(L, entry->type.shape);
    lua_setfield(L, -2, "shape");
    lua_pushstring(L, LongName(entry->type.dtype));
    lua_setfield(L, -2, "dtype");
    PushString(L, entry->kind);
    lua_setfield(L, -2, "kind");
    lua_rawseti(L, -2, ++n);
  }
  return 1;
}

// core.initializer_problem(name): what is wrong with it, or nil
StatusOr<int> ProblemOfInitializer(lua_State* L, Session&) {
  ASSIGN_OR_RETURN(const std::string name, ReadString(L, 1, "initializer_problem: name"));
  const std::string problem = InitializerProblem(name);
  if (problem.empty())
    lua_pushnil(L);
  else
    PushString(L, problem);
  return 1;
}

}  // namespace

void OpenParameters(lua_State* L) {
  NewKind<ParameterHandle>(L);
  SetOperandMetamethods(L);
  lua_pushcfunction(L, Entry<GetField>);
  lua_setfield(L, -2, "__index");
  lua_pushcfunction(L, Entry<SetField>);
  lua_setfield(L, -2, "__newindex");
  lua_pushcfunction(L, Entry<ParameterToText>);
  lua_setfield(L, -2, "__tostring");
  lua_pop(L, 1);
  SetFunctions(L, {{"parameter", Entry<NewParameter>},
                   {"state", Entry<NewState>},
                   {"assign", Entry<AssignParameter>},
                   {"initializer_problem", Entry<ProblemOfInitializer>},
                   {"store", Entry<ListStore>}});
}

}  // namespace mslua
