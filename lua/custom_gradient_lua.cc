#include "lua/custom_gradient_lua.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "core/autodiff/custom_gradient.h"
#include "core/step/located_status.h"
#include "lua/object.h"
#include "lua/session.h"
#include "lua/tensor_lua.h"
#include "lua/trace_lua.h"

namespace mslua {
namespace {

Status NoTrace() { return absl::FailedPreconditionError("no graph is traced"); }

// core.detach(x): x as a value of the trace, and a value that equals it and has no gradient.
StatusOr<int> Detach(lua_State* L, Session& session) {
  if (session.trace == nullptr) return NoTrace();
  Trace& trace = *session.trace;
  ASSIGN_OR_RETURN(const Value x, OperandValue(session, L, 1, DType::kF32));
  trace.Locate(*session.Where());
  const Value detached = trace.g().Op("stop_gradient", {x});
  RETURN_IF_ERROR(trace.Check());
  PushValue(L, trace, x);
  PushValue(L, trace, detached);
  return 2;
}

StatusOr<int> TracedNodes(lua_State* L, Session& session) {
  if (session.trace == nullptr) return NoTrace();
  lua_pushnumber(L, static_cast<double>(session.trace->g().graph().nodes.size()));
  return 1;
}

// The floats of other parts of the graph that the nodes from `first` on read, or that are among the results, which
// nodes of their own detach as `outputs`. What a stage of a pipeline reads of a parameter, and what the arguments are
// detached as, comes from operators without a gradient.
std::vector<CustomGradient::Read> ReadsFrom(const Trace& trace, int32_t first, const std::vector<Value>& results,
                                            const std::vector<Value>& outputs) {
  const Graph& graph = trace.g().graph();
  std::vector<CustomGradient::Read> reads;
  absl::flat_hash_set<Value> known;
  const auto add = [&](Value v, int32_t reader) {
    const Node& maker = graph.nodes[v.node];
    const bool outside = v.node < first || maker.inputs.empty() || maker.op->zero_gradient;
    if (outside && IsFloat(graph.TypeOf(v).dtype) && known.insert(v).second) reads.push_back({v, reader});
  };
  for (int32_t i = first; i < static_cast<int32_t>(graph.nodes.size()); ++i) {
    if (graph.nodes[i].op->zero_gradient) continue;
    for (Value v : graph.nodes[i].inputs) add(v, i);
  }
  for (size_t i = 0; i < results.size(); ++i) add(results[i], outputs[i].node);
  for (const auto& inner : trace.custom_gradients()) {
    if (inner->outputs.back().node < first) continue;
    for (Value v : inner->inputs) add(v, inner->outputs.back().node);
  }
  return reads;
}

StatusOr<std::vector<Value>> ReadValues(lua_State* L, Session& session, int index) {
  std::vector<Value> values;
  for (int i = 1; i <= static_cast<int>(lua_objlen(L, index)); ++i) {
    lua_rawgeti(L, index, i);
    ASSIGN_OR_RETURN(const Value v, OperandValue(session, L, lua_gettop(L), DType::kF32));
    values.push_back(v);
    lua_pop(L, 1);
  }
  return values;
}

// A function of Lua that gives the gradients of a part of a trace.
class Backward {
 public:
  // Takes the function at the top of the stack.
  Backward(Session& session, std::string name, std::vector<TensorType> inputs, std::vector<std::string> labels)
      : session_(session),
        name_(std::move(name)),
        inputs_(std::move(inputs)),
        labels_(std::move(labels)),
        place_(session.trace->place()),
        function_(luaL_ref(session.lua(), LUA_REGISTRYINDEX)) {}
  ~Backward() { luaL_unref(session_.lua(), LUA_REGISTRYINDEX, function_); }
  Backward(const Backward&) = delete;
  Backward& operator=(const Backward&) = delete;

  StatusOr<std::vector<Value>> Run(absl::Span<const Value> dy) const {
    lua_State* L = session_.lua();
    const StackGuard guard(L);
    Trace& trace = *session_.trace;
    const GradientScope scope(trace, place_);
    if (!lua_checkstack(L, static_cast<int>(dy.size()) + 16))
      return absl::ResourceExhaustedError("Lua's stack is full");
    lua_rawgeti(L, LUA_REGISTRYINDEX, function_);
    for (Value v : dy) PushValue(L, trace, v);
    RETURN_IF_ERROR(CallInTrace(session_, static_cast<int>(dy.size()), 1));
    const int list = lua_gettop(L);
    std::vector<Value> dx;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      lua_rawgeti(L, list, static_cast<int>(i) + 1);
      dx.emplace_back();
      if (lua_toboolean(L, -1)) {
        ASSIGN_OR_RETURN(dx.back(), Gradient(L, i));
      }
      lua_settop(L, list);
    }
    return dx;
  }

 private:
  // The gradient of input i, at the top of the stack. In mixed precision the types of values are not the user's.
  StatusOr<Value> Gradient(lua_State* L, size_t i) const {
    Trace& trace = *session_.trace;
    ASSIGN_OR_RETURN(Value dx, OperandValue(session_, L, lua_gettop(L), DType::kF32));
    const TensorType& want = inputs_[i];
    const DType own = trace.g().TypeOf(dx).dtype;
    const auto mixed = [&trace](DType t) { return t == DType::kF32 || t == *trace.amp(); };
    if (trace.amp() && mixed(own) && mixed(want.dtype)) dx = Cast(trace.g(), dx, want.dtype);
    const TensorType got = trace.g().TypeOf(dx);
    if (got == want) return dx;
    return AtLine(absl::InvalidArgumentError(absl::StrCat(
                      name_, ": bprop returns ", ToString(got), " as the gradient of ", labels_[i],
                      ", expected its type, ", ToString(want),
                      got.shape != want.shape ? ": sum over what was broadcast, or reshape it" : ": use :astype")),
                  session_.Where().get());
  }

  Session& session_;
  const std::string name_;
  const std::vector<TensorType> inputs_;
  const std::vector<std::string> labels_;
  const Trace::Place place_;  // of the call of construct
  const int function_;        // in the registry
};

// core.set_gradient(name, first, inputs, labels, outputs, backward)
StatusOr<int> SetGradient(lua_State* L, Session& session) {
  if (session.trace == nullptr) return NoTrace();
  Trace& trace = *session.trace;
  GraphBuilder& g = trace.g();
  CustomGradient custom;
  ASSIGN_OR_RETURN(custom.name, ReadString(L, 1, "set_gradient: name"));
  ASSIGN_OR_RETURN(const int64_t first, ReadInt(L, 2, "set_gradient: first"));
  ASSIGN_OR_RETURN(custom.inputs, ReadValues(L, session, 3));
  std::vector<TensorType> types;
  std::vector<std::string> labels;
  for (size_t i = 0; i < custom.inputs.size(); ++i) {
    types.push_back(g.TypeOf(custom.inputs[i]));
    lua_rawgeti(L, 4, static_cast<int>(i) + 1);
    ASSIGN_OR_RETURN(std::string label, ReadString(L, lua_gettop(L), "set_gradient: labels"));
    labels.push_back(std::move(label));
  }
  ASSIGN_OR_RETURN(const std::vector<Value> results, ReadValues(L, session, 5));
  trace.Locate(*session.Where());
  for (Value v : results) custom.outputs.push_back(g.Op("stop_gradient", {v}));
  RETURN_IF_ERROR(trace.Check());
  custom.reads = ReadsFrom(trace, static_cast<int32_t>(first), results, custom.outputs);
  lua_settop(L, 6);
  const auto backward = std::make_shared<const Backward>(session, custom.name, std::move(types), std::move(labels));
  custom.gradient = [backward](absl::Span<const Value> dy) { return backward->Run(dy); };
  lua_createtable(L, static_cast<int>(custom.outputs.size()), 0);
  for (size_t i = 0; i < custom.outputs.size(); ++i) {
    PushValue(L, trace, custom.outputs[i]);
    lua_rawseti(L, -2, static_cast<int>(i) + 1);
  }
  trace.AddCustomGradient(std::move(custom));
  return 1;
}

}  // namespace

void OpenCustomGradients(lua_State* L) {
  SetFunctions(L,
               {{"detach", Entry<Detach>}, {"traced_nodes", Entry<TracedNodes>}, {"set_gradient", Entry<SetGradient>}});
}

}  // namespace mslua
