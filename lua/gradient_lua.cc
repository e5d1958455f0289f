// core.value_and_grad: traces a function, differentiates the graph, compiles it, and runs it.
#include <cstdint>
#include <list>
#include <memory>
#include <utility>
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

constexpr size_t kMostPrograms = 32;  // of a function: each number that it computes with makes another one

// A function is traced each time that it is called, since it may read what has changed: variables, fields, whether a
// cell trains. Equal graphs are compiled once.
struct GradFunction {
  std::vector<int64_t> arguments;  // from 0
  ParameterList weights;
  struct Compiled {
    uint64_t graph = 0;  // Fingerprint of the function's graph
    std::unique_ptr<Program> program;
  };
  std::list<Compiled> compiled;  // used last first
  int64_t runs = 0;
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

// A call in a trace: the function's results, and what gradients are asked of.
struct TracedCall {
  std::vector<Value> results, wrt;
};

// Calls the function with arguments whose tensors are `values`.
StatusOr<TracedCall> TraceCall(lua_State* L, Session& session, const GradFunction& f, int arguments,
                               const std::vector<Value>& values) {
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
  TracedCall call;
  for (int i = base + 1; i <= lua_gettop(L); ++i) {
    ASSIGN_OR_RETURN(const Value v, OperandValue(session, L, i, DType::kF32));
    call.results.push_back(v);
  }
  lua_settop(L, base);
  if (call.results.empty())
    return absl::InvalidArgumentError("value_and_grad: the function gives nothing; does it end in a return?");
  const TensorType type = trace.g().TypeOf(call.results[0]);
  if (type.rank() != 0 || !IsFloat(type.dtype)) {
    return absl::InvalidArgumentError(
        absl::StrCat("value_and_grad: the function's first result should be a float scalar, got ", ToString(type),
                     " (take its :sum() or :mean())"));
  }
  for (int64_t a : f.arguments) {
    if (a >= arguments || !values[static_cast<size_t>(a)].valid()) {
      return absl::InvalidArgumentError(absl::StrCat("value_and_grad: argument ", a + 1, " is not a tensor"));
    }
    call.wrt.push_back(values[static_cast<size_t>(a)]);
  }
  for (const auto& w : f.weights) {
    ASSIGN_OR_RETURN(const Value v, trace.ParameterInput(w));
    call.wrt.push_back(v);
  }
  return call;
}

// The program of a traced call: one that was compiled of an equal graph, or a new one. Gradients only add to the graph.
StatusOr<Program*> ProgramOf(Session& session, GradFunction& f, const TracedCall& call) {
  Trace& trace = *session.trace;
  GraphBuilder& g = trace.g();
  for (size_t i = 0; i < call.results.size(); ++i) g.Output(absl::StrCat("value", i), call.results[i]);
  trace.OutputAssigned();
  const uint64_t graph = Fingerprint(g.graph());
  for (auto c = f.compiled.begin(); c != f.compiled.end(); ++c) {
    if (c->graph != graph) continue;
    f.compiled.splice(f.compiled.begin(), f.compiled, c);
    return f.compiled.front().program.get();
  }
  ASSIGN_OR_RETURN(const std::vector<Value> gradients, Gradients(g, call.results[0], call.wrt));
  for (size_t i = 0; i < gradients.size(); ++i) g.Output(absl::StrCat("grad", i), gradients[i]);
  ASSIGN_OR_RETURN(const Graph whole, g.Finish());
  ASSIGN_OR_RETURN(auto program, Program::Compile(session, whole, trace.used()));
  if (f.compiled.size() == kMostPrograms) f.compiled.pop_back();
  f.compiled.push_front({graph, std::move(program)});
  return f.compiled.front().program.get();
}

// In a trace: its graph gets the call and the gradients.
StatusOr<int> CallInOuterTrace(lua_State* L, Session& session, const GradFunction& f, int n) {
  Trace& outer = *session.trace;
  std::vector<Value> values;
  for (int i = 1; i <= n; ++i) {
    values.emplace_back();
    if (!IsTensorArgument(L, i)) continue;
    ASSIGN_OR_RETURN(values.back(), OperandValue(session, L, i, DType::kF32));
  }
  ASSIGN_OR_RETURN(const TracedCall call, TraceCall(L, session, f, n, values));
  ASSIGN_OR_RETURN(const std::vector<Value> gradients, Gradients(outer.g(), call.results[0], call.wrt));
  if (!lua_checkstack(L, static_cast<int>(call.results.size() + gradients.size()) + 8))
    return absl::ResourceExhaustedError("Lua's stack is full");
  for (Value v : call.results) PushValue(L, outer, v);
  for (Value v : gradients) PushValue(L, outer, v);
  return PushResults(L, n, call.results.size(), f);
}

StatusOr<int> CallGradFunction(lua_State* L, Session& session) {
  GradFunction& f = **static_cast<std::shared_ptr<GradFunction>*>(lua_touserdata(L, lua_upvalueindex(2)));
  const int n = lua_gettop(L);
  if (session.trace != nullptr) return CallInOuterTrace(L, session, f, n);
  std::vector<Tensor> data;
  Program* program = nullptr;
  size_t results = 0;
  {
    TraceScope scope(session, "grad");
    Trace& trace = scope.trace();
    trace.CaptureTensors();
    std::vector<Value> values;
    for (int i = 1; i <= n; ++i) {
      values.emplace_back();
      if (const auto* t = ToObject<Tensor>(L, i)) {
        if (t->data == nullptr)
          return absl::FailedPreconditionError(absl::StrCat("argument ", i, ": the Tensor was freed"));
        data.push_back(*t);
      } else if (const auto* p = ToObject<std::shared_ptr<ParameterData>>(L, i)) {
        ASSIGN_OR_RETURN(Tensor t, BorrowValue(session.state(), **p));
        data.push_back(std::move(t));
      } else {
        continue;
      }
      values.back() = trace.DataInput(absl::StrCat("x", i), data.back().type);
    }
    RETURN_IF_ERROR(trace.Check());
    ASSIGN_OR_RETURN(const TracedCall call, TraceCall(L, session, f, n, values));
    ASSIGN_OR_RETURN(program, ProgramOf(session, f, call));
    results = call.results.size();
    data.insert(data.end(), trace.captured().begin(), trace.captured().end());
  }
  program->StartAt(f.runs++);
  ASSIGN_OR_RETURN(std::vector<Tensor> outputs, program->Run(session, data));
  if (!lua_checkstack(L, static_cast<int>(outputs.size()) + 8))
    return absl::ResourceExhaustedError("Lua's stack is full");
  for (Tensor& t : outputs) PushObject<Tensor>(L, std::move(t));
  return PushResults(L, n, results, f);
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
