#include "lua/graph_lua.h"

#include "absl/strings/str_cat.h"
#include "core/base/atomic_file.h"
#include "lua/session.h"
#include "lua/tensor_lua.h"
#include "lua/trace_lua.h"

namespace mslua {
namespace {

using GraphObject = std::shared_ptr<TracedGraph>;

StatusOr<GraphObject> Self(lua_State* L) {
  const auto* graph = ToObject<GraphObject>(L, 1);
  if (graph == nullptr)
    return absl::InvalidArgumentError(absl::StrCat("expected a Graph before the colon, got ", Describe(L, 1)));
  return *graph;
}

StatusOr<int> GraphText(lua_State* L, Session&) {
  ASSIGN_OR_RETURN(const GraphObject g, Self(L));
  PushString(L, ToString(g->graph));
  return 1;
}

StatusOr<int> SaveGraph(lua_State* L, Session&) {
  ASSIGN_OR_RETURN(const GraphObject g, Self(L));
  ASSIGN_OR_RETURN(const std::string path, ReadString(L, 2, "save: path"));
  RETURN_IF_ERROR(WriteFileAtomically(path, ToString(g->graph)));
  return 0;
}

StatusOr<int> CountNodes(lua_State* L, Session&) {
  ASSIGN_OR_RETURN(const GraphObject g, Self(L));
  lua_pushnumber(L, static_cast<double>(g->graph.nodes.size()));
  return 1;
}

void PushEntry(lua_State* L, const std::string& name, const TensorType& type) {
  lua_createtable(L, 0, 4);
  PushString(L, name);
  lua_setfield(L, -2, "name");
  lua_pushstring(L, LongName(type.dtype));
  lua_setfield(L, -2, "dtype");
  PushInts(L, type.shape);
  lua_setfield(L, -2, "shape");
}

StatusOr<int> ListInputs(lua_State* L, Session&) {
  ASSIGN_OR_RETURN(const GraphObject g, Self(L));
  lua_newtable(L);
  int n = 0;
  for (int32_t i : g->graph.Inputs()) {
    const Node& node = g->graph.nodes[i];
    PushEntry(L, node.attrs.Str("name"), node.outputs[0]);
    PushString(L, node.attrs.Str("kind"));
    lua_setfield(L, -2, "kind");
    lua_rawseti(L, -2, ++n);
  }
  return 1;
}

StatusOr<int> ListOutputs(lua_State* L, Session&) {
  ASSIGN_OR_RETURN(const GraphObject g, Self(L));
  lua_newtable(L);
  int n = 0;
  for (const GraphOutput& o : g->graph.outputs) {
    PushEntry(L, o.name, g->graph.TypeOf(o.value));
    if (!o.updates.empty()) {
      PushString(L, o.updates);
      lua_setfield(L, -2, "updates");
    }
    lua_rawseti(L, -2, ++n);
  }
  return 1;
}

StatusOr<int> RunGraph(lua_State* L, Session& session) {
  ASSIGN_OR_RETURN(const GraphObject g, Self(L));
  std::vector<Tensor> data;
  for (int i = 2; i <= lua_gettop(L); ++i) {
    ASSIGN_OR_RETURN(Tensor t, ReadTensor(session, L, i, absl::nullopt, absl::StrCat("run: argument ", i - 1)));
    data.push_back(std::move(t));
  }
  if (g->program == nullptr) {
    ASSIGN_OR_RETURN(g->program, Program::Compile(session, g->graph, g->parameters));
  }
  ASSIGN_OR_RETURN(std::vector<Tensor> outputs, g->program->Run(session, data));
  for (Tensor& t : outputs) PushObject<Tensor>(L, std::move(t));
  return static_cast<int>(outputs.size());
}

// core.trace(fn, inputs)
StatusOr<int> TraceFunction(lua_State* L, Session& session) {
  ASSIGN_OR_RETURN(const std::vector<InputSpec> specs, ReadInputSpecs(L, 2, "trace"));
  if (session.trace != nullptr) return absl::FailedPreconditionError("trace inside a trace");
  TraceScope scope(session, "trace");
  Trace& trace = scope.trace();
  std::vector<Value> inputs;
  for (const InputSpec& s : specs) inputs.push_back(trace.DataInput(s.name, s.type));
  RETURN_IF_ERROR(trace.Check());
  ASSIGN_OR_RETURN(const std::vector<Value> outputs, CallTraced(L, session, 1, inputs, "trace"));
  for (size_t i = 0; i < outputs.size(); ++i) trace.g().Output(absl::StrCat("out", i + 1), outputs[i]);
  trace.OutputAssigned();
  return PushGraph(L, trace);
}

}  // namespace

StatusOr<std::vector<InputSpec>> ReadInputSpecs(lua_State* L, int index, absl::string_view what) {
  const StackGuard guard(L);
  index = AbsoluteIndex(L, index);
  if (lua_type(L, index) != LUA_TTABLE)
    return absl::InvalidArgumentError(absl::StrCat(what, ": inputs: expected a list, got ", Describe(L, index)));
  std::vector<InputSpec> specs;
  const int n = static_cast<int>(lua_objlen(L, index));
  for (int i = 1; i <= n; ++i) {
    lua_rawgeti(L, index, i);
    const std::string at = absl::StrCat(what, ": inputs[", i, "]");
    RETURN_IF_ERROR(CheckFields(L, -1, at, {"name", "dtype", "shape"}));
    InputSpec spec;
    ASSIGN_OR_RETURN(spec.name, FieldString(L, -1, "name", absl::StrCat("x", i)));
    lua_getfield(L, -1, "dtype");
    if (!lua_isnil(L, -1)) {
      ASSIGN_OR_RETURN(spec.type.dtype, ReadDType(L, -1, absl::StrCat(at, ": dtype")));
    }
    lua_getfield(L, -2, "shape");
    ASSIGN_OR_RETURN(spec.type.shape, ReadShape(L, -1, absl::StrCat(at, ": shape")));
    lua_pop(L, 3);
    specs.push_back(std::move(spec));
  }
  return specs;
}

StatusOr<int> PushGraph(lua_State* L, Trace& trace) {
  auto traced = std::make_shared<TracedGraph>();
  ASSIGN_OR_RETURN(static_cast<StepGraph&>(*traced), FinishTrace(trace));
  PushObject<GraphObject>(L, std::move(traced));
  return 1;
}

StatusOr<std::vector<std::shared_ptr<ParameterData>>> ReadParameters(lua_State* L, int index, absl::string_view what) {
  const StackGuard guard(L);
  std::vector<std::shared_ptr<ParameterData>> out;
  if (lua_isnoneornil(L, index)) return out;
  index = AbsoluteIndex(L, index);
  if (lua_type(L, index) != LUA_TTABLE)
    return absl::InvalidArgumentError(absl::StrCat(what, ": expected a list of parameters, got ", Describe(L, index)));
  const int n = static_cast<int>(lua_objlen(L, index));
  for (int i = 1; i <= n; ++i) {
    lua_rawgeti(L, index, i);
    const auto* p = ToObject<std::shared_ptr<ParameterData>>(L, -1);
    if (p == nullptr)
      return absl::InvalidArgumentError(absl::StrCat(what, "[", i, "]: expected a Parameter, got ", Describe(L, -1)));
    out.push_back(*p);
    lua_pop(L, 1);
  }
  return out;
}

void OpenGraphs(lua_State* L) {
  NewKind<GraphObject>(L);
  lua_newtable(L);
  SetFunctions(L, {{"text", Entry<GraphText>},
                   {"save", Entry<SaveGraph>},
                   {"nodes", Entry<CountNodes>},
                   {"inputs", Entry<ListInputs>},
                   {"outputs", Entry<ListOutputs>},
                   {"run", Entry<RunGraph>}});
  lua_setfield(L, -2, "__index");
  lua_pushcfunction(L, Entry<GraphText>);
  lua_setfield(L, -2, "__tostring");
  lua_pop(L, 1);
  SetFunctions(L, {{"trace", Entry<TraceFunction>}});
}

}  // namespace mslua
