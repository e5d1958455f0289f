// core.value_and_grad: traces a function, differentiates the graph, compiles it, and runs it.
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/autodiff/gradient.h"
#include "lua/graph_lua.h"
#include "lua/session.h"
#include "lua/tensor_lua.h"
#include "lua/trace_lua.h"

namespace mslua {

namespace {
struct GradFunction;
}
template <>
struct KindName<std::shared_ptr<GradFunction>> {
  static constexpr const char* value = "GradFunction";
};

namespace {

using ParameterList = std::vector<std::shared_ptr<ParameterData>>;

struct GradFunction {
  std::vector<int64_t> arguments;  // from 0
  ParameterList weights;
  struct Compiled {
    std::unique_ptr<Program> program;
    size_t values = 0;  // results of the function itself
  };
  std::map<std::string, Compiled> compiled;  // by the arguments' types
};

void PushList(lua_State* L, int first, int count) {
  lua_createtable(L, count, 0);
  for (int i = 0; i < count; ++i) {
    lua_pushvalue(L, first + i);
    lua_rawseti(L, -2, i + 1);
  }
}

// From `base` + 1 on lie the values, the arguments' gradients and the weights'; pushes them as three lists.
int PushResults(lua_State* L, int base, size_t values, const GradFunction& f) {
  const int v = static_cast<int>(values), a = static_cast<int>(f.arguments.size()),
            w = static_cast<int>(f.weights.size());
  PushList(L, base + 1, v);
  PushList(L, base + 1 + v, a);
  PushList(L, base + 1 + v + a, w);
  return 3;
}

// Whether the argument enters the graph as a tensor.
bool IsTensorArgument(lua_State* L, int index) {
  return ToObject<Tensor>(L, index) != nullptr || ToObject<std::shared_ptr<ParameterData>>(L, index) != nullptr ||
         ToObject<TracedValue>(L, index) != nullptr;
}

// What the trace of a call depends on: types of tensors, the rest as they are.
std::string KeyOfArguments(lua_State* L, int n) {
  std::string key;
  for (int i = 1; i <= n; ++i) {
    if (const auto* t = ToObject<Tensor>(L, i))
      absl::StrAppend(&key, ToString(t->type), ",");
    else if (const auto* p = ToObject<std::shared_ptr<ParameterData>>(L, i))
      absl::StrAppend(&key, ToString((*p)->type), ",");
    else if (lua_topointer(L, i) != nullptr)
      absl::StrAppend(&key, absl::Hex(reinterpret_cast<uintptr_t>(lua_topointer(L, i))), ",");
    else
      absl::StrAppend(&key, Describe(L, i), ",");
  }
  return key;
}

// Calls the function with arguments whose tensors are `values`, and appends gradients: all results and gradients.
StatusOr<std::vector<Value>> TraceGradients(lua_State* L, Session& session, const GradFunction& f, int arguments,
                                            const std::vector<Value>& values, size_t* results) {
  Trace& trace = *session.trace;
  const int base = lua_gettop(L);
  if (!lua_checkstack(L, arguments + 8)) return absl::ResourceExhaustedError("Lua's stack is full");
  lua_pushvalue(L, lua_upvalueindex(1));
  for (int i = 1; i <= arguments; ++i) {
    if (values[i - 1].valid())
      PushValue(L, trace, values[i - 1]);
    else
      lua_pushvalue(L, i);
  }
  RETURN_IF_ERROR(CallInTrace(session, arguments, LUA_MULTRET));
  std::vector<Value> out;
  for (int i = base + 1; i <= lua_gettop(L); ++i) {
    ASSIGN_OR_RETURN(const Value v, OperandValue(session, L, i, DType::kF32));
    out.push_back(v);
  }
  lua_settop(L, base);
  if (out.empty())
    return absl::InvalidArgumentError("value_and_grad: the function gives nothing; does it end in a return?");
  const TensorType type = trace.g().TypeOf(out[0]);
  if (type.rank() != 0 || !IsFloat(type.dtype)) {
    return absl::InvalidArgumentError(
        absl::StrCat("value_and_grad: the function's first result should be a float scalar, got ", ToString(type),
                     " (take its :sum() or :mean())"));
  }
  *results = out.size();
  std::vector<Value> wrt;
  for (int64_t a : f.arguments) {
    if (a >= arguments || !values[static_cast<size_t>(a)].valid()) {
      return absl::InvalidArgumentError(absl::StrCat("value_and_grad: argument ", a + 1, " is not a tensor"));
    }
    wrt.push_back(values[static_cast<size_t>(a)]);
  }
  for (const auto& w : f.weights) {
    ASSIGN_OR_RETURN(const Value v, trace.ParameterInput(w));
    wrt.push_back(v);
  }
  ASSIGN_OR_RETURN(const std::vector<Value> gradients, Gradients(trace.g(), out[0], wrt));
  out.insert(out.end(), gradients.begin(), gradients.end());
  return out;
}

StatusOr<int> CallGradFunction(lua_State* L, Session& session) {
  GradFunction& f = **static_cast<std::shared_ptr<GradFunction>*>(lua_touserdata(L, lua_upvalueindex(2)));
  const int n = lua_gettop(L);
  if (session.trace != nullptr) {
    Trace& outer = *session.trace;
    std::vector<Value> values;
    for (int i = 1; i <= n; ++i) {
      values.emplace_back();
      if (!IsTensorArgument(L, i)) continue;
      ASSIGN_OR_RETURN(values.back(), OperandValue(session, L, i, DType::kF32));
    }
    size_t results;
    ASSIGN_OR_RETURN(const std::vector<Value> out, TraceGradients(L, session, f, n, values, &results));
    if (!lua_checkstack(L, static_cast<int>(out.size()) + 8))
      return absl::ResourceExhaustedError("Lua's stack is full");
    for (Value v : out) PushValue(L, outer, v);
    return PushResults(L, n, results, f);
  }
  const std::string key = KeyOfArguments(L, n);
  auto found = f.compiled.find(key);
  if (found == f.compiled.end()) {
    TraceScope scope(session, "grad", session.training);
    Trace& trace = scope.trace();
    std::vector<Value> values;
    for (int i = 1; i <= n; ++i) {
      values.emplace_back();
      TensorType type;
      if (const auto* t = ToObject<Tensor>(L, i))
        type = t->type;
      else if (const auto* p = ToObject<std::shared_ptr<ParameterData>>(L, i))
        type = (*p)->type;
      else
        continue;
      values.back() = trace.DataInput(absl::StrCat("x", i), type);
    }
    RETURN_IF_ERROR(trace.Check());
    GradFunction::Compiled fresh;
    ASSIGN_OR_RETURN(const std::vector<Value> out, TraceGradients(L, session, f, n, values, &fresh.values));
    for (size_t i = 0; i < out.size(); ++i)
      trace.g().Output(absl::StrCat(i < fresh.values ? "value" : "grad", i), out[i]);
    trace.OutputAssigned();
    ASSIGN_OR_RETURN(const Graph graph, trace.g().Finish());
    ASSIGN_OR_RETURN(fresh.program, Program::Compile(session, graph, trace.used()));
    found = f.compiled.emplace(key, std::move(fresh)).first;
  }
  std::vector<Tensor> data;
  for (int i = 1; i <= n; ++i) {
    if (const auto* t = ToObject<Tensor>(L, i)) {
      if (t->data == nullptr)
        return absl::FailedPreconditionError(absl::StrCat("argument ", i, ": the Tensor was freed"));
      data.push_back(*t);
    } else if (const auto* p = ToObject<std::shared_ptr<ParameterData>>(L, i)) {
      ASSIGN_OR_RETURN(Tensor t, BorrowValue(session.state(), **p));
      data.push_back(std::move(t));
    }
  }
  ASSIGN_OR_RETURN(std::vector<Tensor> outputs, found->second.program->Run(session, data));
  if (!lua_checkstack(L, static_cast<int>(outputs.size()) + 8))
    return absl::ResourceExhaustedError("Lua's stack is full");
  for (Tensor& t : outputs) PushObject<Tensor>(L, std::move(t));
  return PushResults(L, n, found->second.values, f);
}

// core.value_and_grad(f, argnums, weights)
StatusOr<int> ValueAndGrad(lua_State* L, Session&) {
  const int type = lua_type(L, 1);
  if (type != LUA_TFUNCTION && !luaL_getmetafield(L, 1, "__call")) {
    return absl::InvalidArgumentError(
        absl::StrCat("value_and_grad: expected a function or a Cell, got ", Describe(L, 1)));
  }
  lua_settop(L, 3);
  auto f = std::make_shared<GradFunction>();
  if (lua_isnil(L, 2)) {
    f->arguments = {0};
  } else {
    ASSIGN_OR_RETURN(f->arguments, ReadInts(L, 2, "value_and_grad: argnums"));
    for (int64_t& a : f->arguments) {
      if (a < 1)
        return absl::InvalidArgumentError(
            absl::StrCat("value_and_grad: argument ", a, " does not exist: arguments count from 1"));
      --a;
    }
  }
  ASSIGN_OR_RETURN(f->weights, ReadParameters(L, 3, "value_and_grad: weights"));
  lua_pushvalue(L, 1);
  PushObject<std::shared_ptr<GradFunction>>(L, std::move(f));
  lua_pushcclosure(L, Entry<CallGradFunction>, 2);
  return 1;
}

}  // namespace

void OpenGradients(lua_State* L) {
  NewKind<std::shared_ptr<GradFunction>>(L);
  lua_pop(L, 1);
  SetFunctions(L, {{"value_and_grad", Entry<ValueAndGrad>}});
}

}  // namespace mslua
