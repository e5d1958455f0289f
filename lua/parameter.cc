#include "lua/parameter.h"

#include <cstring>
#include <new>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/exit_code.h"
#include "core/base/text.h"
#include "lua/global_view.h"
#include "lua/object.h"
#include "lua/session.h"
#include "lua/tensor_lua.h"
#include "lua/tensor_methods.h"
#include "lua/trace.h"

namespace mslua {

const std::string& KeyOf(Session& session, ParameterData& p) {
  if (!p.key.empty()) return p.key;
  const std::string name = p.name.empty() ? "Parameter" : p.name;
  std::string key = name;
  for (int copy = 2; !session.parameter_keys.insert(key).second; ++copy) key = absl::StrCat(name, "#", copy);
  p.key = std::move(key);
  return p.key;
}

namespace {

// The other pipeline stage that keeps a parameter; kNoStage: this rank's may have it.
int OtherStage(const GlobalView* view, const std::string& key) {
  const int owner = view == nullptr ? kNoStage : view->OwnerOf(key);
  return owner == kNoStage || owner == view->stage() ? kNoStage : owner;
}

// Memory for a value of a parameter, of a part of it or of all.
StatusOr<TensorView> AddValue(Session& session, const ParameterData& p, const std::string& key,
                              const TensorType& type) {
  try {
    return session.store().Add(key, p.kind, type);
  } catch (const std::bad_alloc&) {
    session.exit_code = kExitEnvironment;
    return AtLine(absl::ResourceExhaustedError(absl::StrCat("parameter '", p.name, "' ", ToString(type), " needs ",
                                                            type.bytes(), " bytes: out of memory")),
                  p.made_at.get());
  }
}

// This rank's part of a parameter's first value.
StatusOr<TensorView> MakePart(Session& session, ParameterData& p, const GlobalView::Part& part) {
  ASSIGN_OR_RETURN(const TensorView value, AddValue(session, p, p.key, part.local));
  RETURN_IF_ERROR(Annotate(Fill(p.init, session.seed, p.name, part.whole, part.begin, value),
                           absl::StrCat("parameter '", p.name, "'")));
  p.init.constant = Tensor();  // its memory is not needed any more
  return value;
}

// This rank's part of a value that was made whole, by load_checkpoint say, before a graph was sharded.
StatusOr<TensorView> KeepPart(Session& session, const std::string& key, const GlobalView::Part& part) {
  ASSIGN_OR_RETURN(const Block whole, session.store().Retype(key, part.local));
  const TensorView kept = session.store().Find(key)->view();
  CutPart(part.whole, part.begin, part.local.shape, whole.data(), kept.data);
  return kept;
}

}  // namespace

StatusOr<TensorView> ValueOf(Session& session, ParameterData& p) {
  const std::string& key = KeyOf(session, p);
  const GlobalView* view = GlobalView::Of(session);
  const GlobalView::Part* part = view == nullptr ? nullptr : view->Find(key);
  if (const Store::Entry* entry = session.store().Find(key)) {
    if (part == nullptr || entry->type != part->whole || part->local == part->whole) return entry->view();
    return KeepPart(session, key, *part);
  }
  if (const int other = OtherStage(view, key); other != kNoStage) {
    return absl::FailedPreconditionError(absl::StrCat("parameter '", p.name,
                                                      "' is kept by the ranks of pipeline stage ", other,
                                                      "; this rank is of stage ", view->stage()));
  }
  if (part != nullptr) return MakePart(session, p, *part);
  ASSIGN_OR_RETURN(const TensorView value, AddValue(session, p, key, p.type));
  RETURN_IF_ERROR(Annotate(Fill(p.init, session.seed, p.name, value), absl::StrCat("parameter '", p.name, "'")));
  p.init.constant = Tensor();  // its memory is not needed any more
  return value;
}

StatusOr<Tensor> BorrowValue(Session& session, ParameterData& p) {
  ASSIGN_OR_RETURN(const TensorView value, ValueOf(session, p));
  return Tensor{value.type, std::shared_ptr<void>(value.data, [](void*) {})};
}

Status SetValue(Session& session, ParameterData& p, const Tensor& value) {
  if (value.type != p.type) {
    return absl::InvalidArgumentError(
        absl::StrCat("parameter '", p.name, "' is ", ToString(p.type), ", the value is ", ToString(value.type)));
  }
  const GlobalView* view = GlobalView::Of(session);
  if (OtherStage(view, KeyOf(session, p)) != kNoStage)
    return absl::OkStatus();  // all ranks set it, that stage's keep it
  ASSIGN_OR_RETURN(const TensorView memory, ValueOf(session, p));
  if (const GlobalView::Part* part = view == nullptr ? nullptr : view->Find(p.key)) {
    CutPart(part->whole, part->begin, part->local.shape, value.data.get(), memory.data);
    return absl::OkStatus();
  }
  std::memcpy(memory.data, value.data.get(), static_cast<size_t>(p.type.bytes()));
  return absl::OkStatus();
}

namespace {

using ParameterHandle = std::shared_ptr<ParameterData>;

StatusOr<int64_t> ReadCommFusion(lua_State* L, int index, absl::string_view what) {
  ASSIGN_OR_RETURN(const int64_t id, ReadInt(L, index, what));
  if (id < 0) return absl::InvalidArgumentError(absl::StrCat(what, ": expected an integer, at least 0, got ", id));
  return id;
}

StatusOr<int> MakeParameter(lua_State* L, Session& session, const char* kind) {
  const bool state = absl::string_view(kind) == kState;
  RETURN_IF_ERROR(CheckFields(
      L, 1, state ? "state" : "Parameter",
      {"name", "shape", "dtype", "init", "requires_grad", "layerwise_parallel", "parallel_optimizer", "comm_fusion"}));
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
      ASSIGN_OR_RETURN(p->init.constant, CastTensor(session, p->init.constant, dtype));
      p->type.dtype = dtype;
    }
  }
  if (!has_shape && p->init.kind != "tensor") {
    return absl::InvalidArgumentError(
        absl::StrCat("Parameter '", p->name, "': a shape is needed, or a tensor as its init"));
  }
  ASSIGN_OR_RETURN(p->requires_grad, FieldBool(L, 1, "requires_grad", !state && IsFloat(p->type.dtype)));
  ASSIGN_OR_RETURN(p->layerwise_parallel, FieldBool(L, 1, "layerwise_parallel", false));
  ASSIGN_OR_RETURN(p->parallel_optimizer, FieldBool(L, 1, "parallel_optimizer", true));
  lua_getfield(L, 1, "comm_fusion");
  if (!lua_isnil(L, -1)) {
    ASSIGN_OR_RETURN(p->comm_fusion, ReadCommFusion(L, -1, absl::StrCat("Parameter '", p->name, "': comm_fusion")));
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
      "name", "value", "requires_grad", "layerwise_parallel", "parallel_optimizer", "comm_fusion"};
  return *names;
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
    else if (field == "layerwise_parallel")
      lua_pushboolean(L, p.layerwise_parallel);
    else if (field == "parallel_optimizer")
      lua_pushboolean(L, p.parallel_optimizer);
    else if (field == "comm_fusion")
      lua_pushnumber(L, static_cast<double>(p.comm_fusion));
    else if (field == "value") {
      ASSIGN_OR_RETURN(const TensorView value, ValueOf(session, p));
      ASSIGN_OR_RETURN(Tensor copy, NewTensor(session, value.type));
      std::memcpy(copy.data.get(), value.data, static_cast<size_t>(value.type.bytes()));
      PushObject<Tensor>(L, std::move(copy));
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
  } else if (field == "value") {
    ASSIGN_OR_RETURN(const Tensor value, ReadTensor(session, L, 3, p.type.dtype, what));
    RETURN_IF_ERROR(SetValue(session, p, value));
  } else if (field == "comm_fusion") {
    ASSIGN_OR_RETURN(p.comm_fusion, ReadCommFusion(L, 3, what));
  } else if (field == "requires_grad") {
    ASSIGN_OR_RETURN(p.requires_grad, ReadBool(L, 3, what));
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
  if (session.trace != nullptr) {
    ASSIGN_OR_RETURN(const Value value, session.trace->ToValue(L, 2, (*handle)->type.dtype));
    RETURN_IF_ERROR(session.trace->Assign(*handle, value));
    return 0;
  }
  ASSIGN_OR_RETURN(const Tensor value, ReadTensor(session, L, 2, (*handle)->type.dtype, "assign"));
  RETURN_IF_ERROR(SetValue(session, **handle, value));
  return 0;
}

StatusOr<int> ListStore(lua_State* L, Session& session) {
  lua_newtable(L);
  int n = 0;
  for (const auto& entry : session.store().entries()) {
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
