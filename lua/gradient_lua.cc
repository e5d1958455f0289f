// core.value_and_grad: traces a function, differentiates the graph, compiles it, and runs it.
#include <cstdint>
#include <cstdio>
#include <list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"
#include "core/autodiff/gradient.h"
#include "lua/graph_lua.h"
#include "lua/session.h"
#include "lua/tensor_lua.h"
#include "lua/trace_lua.h"

namespace mslua {

namespace {
struct GradFunction;
struct GradientPrograms;
}  // namespace
template <>
struct KindName<std::shared_ptr<GradFunction>> {
  static constexpr const char* value = "GradFunction";
};
template <>
struct KindName<std::shared_ptr<GradientPrograms>> {
  static constexpr const char* value = "GradientPrograms";
};

namespace {

// The programs of all functions of a session: those whose graphs are equal have one program. The programs that were
// used last stay, at least kLeastPrograms of them, and more as long as their graphs have no more than kMostNodes nodes.
struct GradientPrograms {
  static constexpr size_t kLeastPrograms = 32;
  static constexpr size_t kMostNodes = size_t{1} << 18;
  static constexpr int kManyPrograms = 100;  // of one line: a note says so
  struct Compiled {
    std::string key;  // the graph's fingerprint, and what its gradients are asked of
    size_t nodes = 0;
    std::shared_ptr<Program> program;
  };
  std::list<Compiled> compiled;  // used last first
  absl::flat_hash_map<std::string, std::list<Compiled>::iterator> by_key;
  size_t nodes = 0;                                // of all
  absl::flat_hash_map<std::string, int> compiles;  // made for the calls on a line, "train.lua:12"

  std::shared_ptr<Program> Find(const std::string& key) {
    const auto found = by_key.find(key);
    if (found == by_key.end()) return nullptr;
    compiled.splice(compiled.begin(), compiled, found->second);
    return found->second->program;
  }

  void Add(Compiled made) {
    while (compiled.size() >= kLeastPrograms && nodes + made.nodes > kMostNodes) {
      nodes -= compiled.back().nodes;
      by_key.erase(compiled.back().key);
      compiled.pop_back();
    }
    nodes += made.nodes;
    compiled.push_front(std::move(made));
    by_key[compiled.front().key] = compiled.begin();
  }
};

using ParameterList = std::vector<std::shared_ptr<ParameterData>>;

// A function is traced each time that it is called, since it may read what has changed: variables, fields, whether a
// cell trains. Equal graphs are compiled once.
struct GradFunction {
  std::vector<int64_t> arguments;  // from 0
  ParameterList weights;
  const char* name = "value_and_grad";
  bool values_only = false;  // nothing is differentiated: it draws as if its operators were called one by one
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
    if (f.values_only && !IsTensorArgument(L, i))
      return absl::InvalidArgumentError(absl::StrCat(f.name, ": result ", i - base, " is no tensor"));
    const StatusOr<Value> v = OperandValue(session, L, i, DType::kF32);
    if (!v.ok() && lua_type(L, i) == LUA_TTABLE) {
      return absl::InvalidArgumentError(absl::StrCat("value_and_grad: result ", i - base,
                                                     " of the function is a table: expected a tensor: return each "
                                                     "tensor as a result of its own, loss, x, y"));
    }
    RETURN_IF_ERROR(v.status());
    call.results.push_back(*v);
  }
  lua_settop(L, base);
  if (call.results.empty())
    return absl::InvalidArgumentError("value_and_grad: the function gives nothing; does it end in a return?");
  if (f.values_only) return call;
  const TensorType type = trace.g().TypeOf(call.results[0]);
  if (type.rank() != 0 || !IsFloat(type.dtype)) {
    return absl::InvalidArgumentError(
        absl::StrCat("value_and_grad: the function's first result should be a float scalar, got ", ToString(type),
                     type.rank() != 0 ? " (take its :sum() or :mean())"
                                      : " (only floats have gradients: give it x:astype(ms.float32))"));
  }
  for (int64_t a : f.arguments) {
    if (a >= arguments || !values[static_cast<size_t>(a)].valid()) {
      return absl::InvalidArgumentError(
          a >= arguments ? absl::StrCat("value_and_grad: expected a tensor as argument ", a + 1, ", got ", arguments,
                                        " argument", arguments == 1 ? "" : "s",
                                        ": its gradient is asked for; grad_position = {} with weights asks for none")
                         : absl::StrCat("value_and_grad: expected a tensor as argument ", a + 1, ", got ",
                                        Describe(L, static_cast<int>(a) + 1),
                                        ": its gradient is asked for; give each tensor as an argument of its own"));
    }
    call.wrt.push_back(values[static_cast<size_t>(a)]);
    const TensorType argument = trace.g().TypeOf(call.wrt.back());
    if (!IsFloat(argument.dtype)) {
      return absl::InvalidArgumentError(absl::StrCat("value_and_grad: argument ", a + 1, " should be of floats, got ",
                                                     ToString(argument),
                                                     " (only floats have gradients: give it x:astype(ms.float32))"));
    }
  }
  for (const auto& w : f.weights) {
    ASSIGN_OR_RETURN(const Value v, trace.ParameterInput(w));
    call.wrt.push_back(v);
  }
  return call;
}

// Those of the session, which Lua's registry keeps.
GradientPrograms& ProgramsOf(lua_State* L) {
  constexpr char kPrograms[] = "mslua.gradient_programs";
  const StackGuard guard(L);
  lua_getfield(L, LUA_REGISTRYINDEX, kPrograms);
  if (lua_isnil(L, -1)) {
    PushObject(L, std::make_shared<GradientPrograms>());
    lua_pushvalue(L, -1);
    lua_setfield(L, LUA_REGISTRYINDEX, kPrograms);
  }
  return **ToObject<std::shared_ptr<GradientPrograms>>(L, -1);
}

// Adds the gradients of a traced call to its trace.
StatusOr<std::vector<Value>> GradientsOf(Trace& trace, const TracedCall& call) {
  if (call.wrt.empty()) return std::vector<Value>();
  return Gradients(trace.g(), call.results[0], call.wrt, Value(), /*mark_origin=*/false, /*flows=*/nullptr,
                   &trace.custom_gradients());
}

// Adds the gradients as outputs.
Status OutputGradients(Trace& trace, const TracedCall& call) {
  ASSIGN_OR_RETURN(const std::vector<Value> gradients, GradientsOf(trace, call));
  for (size_t i = 0; i < gradients.size(); ++i) trace.g().Output(absl::StrCat("grad", i), gradients[i]);
  return absl::OkStatus();
}

// The program of a traced call: one that was compiled of an equal graph, or a new one. Gradients follow from the graph,
// but for those that a cell's bprop gives: these are a part of the graph that is compared.
StatusOr<std::shared_ptr<Program>> ProgramOf(Session& session, const GradFunction& f, const TracedCall& call) {
  Trace& trace = *session.trace;
  GraphBuilder& g = trace.g();
  for (size_t i = 0; i < call.results.size(); ++i) g.Output(absl::StrCat("value", i), call.results[i]);
  const bool custom = !trace.custom_gradients().empty();
  if (custom) RETURN_IF_ERROR(OutputGradients(trace, call));
  trace.OutputAssigned();
  // Of the same lines, which its errors name.
  size_t lines = 0;
  for (const Node& n : g.graph().nodes) {
    if (n.location != nullptr) lines = absl::HashOf(lines, n.location->file, n.location->line);
  }
  std::string key = absl::StrCat(Fingerprint(g.graph()), " ", lines);
  for (const Value v : call.wrt) absl::StrAppend(&key, " ", v.node, ".", v.output);
  GradientPrograms& programs = ProgramsOf(session.lua());
  if (std::shared_ptr<Program> known = programs.Find(key)) return known;
  if (!custom) RETURN_IF_ERROR(OutputGradients(trace, call));
  ASSIGN_OR_RETURN(const Graph whole, g.Finish());
  ASSIGN_OR_RETURN(auto program, Program::Compile(session, whole, trace.used()));
  std::shared_ptr<Program> shared = std::move(program);
  programs.Add({std::move(key), whole.nodes.size(), shared});
  const auto where = session.Where();
  const std::string line = where->file.empty() ? "" : absl::StrCat(where->file, ":", where->line);
  if (++programs.compiles[line] == GradientPrograms::kManyPrograms && session.state().rank == 0) {
    std::fprintf(stderr,
                 "mslua: note: %s%s%s: %d different graphs were compiled here: each Lua number and each "
                 "shape makes another one; give numbers that change as tensors, and pad to few shapes\n",
                 line.c_str(), line.empty() ? "" : ": ", f.name, GradientPrograms::kManyPrograms);
  }
  return shared;
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
  ASSIGN_OR_RETURN(const std::vector<Value> gradients, GradientsOf(outer, call));
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
  std::shared_ptr<Program> program;
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
  if (!f.values_only)
    program->StartAt(session.gradient_calls++);
  else if (program->counts_runs())
    program->StartAt(static_cast<int64_t>(session.random_tensors++));
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

// core.compiled(f): a function that gives a list of f's results
StatusOr<int> Compiled(lua_State* L, Session&) {
  lua_settop(L, 1);
  auto f = std::make_shared<GradFunction>();
  f->name = "predict";
  f->values_only = true;
  PushObject<std::shared_ptr<GradFunction>>(L, std::move(f));
  lua_pushcclosure(L, Entry<CallGradFunction>, 2);
  return 1;
}

}  // namespace

void OpenGradients(lua_State* L) {
  NewKind<std::shared_ptr<GradFunction>>(L);
  NewKind<std::shared_ptr<GradientPrograms>>(L);
  lua_pop(L, 2);
  SetFunctions(L, {{"value_and_grad", Entry<ValueAndGrad>}, {"compiled", Entry<Compiled>}});
}

}  // namespace mslua
