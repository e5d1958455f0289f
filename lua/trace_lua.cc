#include "lua/trace_lua.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/sharding/stages.h"
#include "lua/tensor_lua.h"

namespace mslua {

TraceScope::TraceScope(Session& session, std::string name, bool training)
    : session_(session),
      outer_(session.trace),
      trace_(session.state(), session.next_trace_id++, std::move(name), training) {
  session.trace = &trace_;
  if (outer_ == nullptr) session.FollowLines(true);
}

TraceScope::TraceScope(Session& session, std::string name) : TraceScope(session, std::move(name), session.training) {
  trace_.FollowCells();
}

TraceScope::~TraceScope() {
  session_.trace = outer_;
  if (outer_ == nullptr) session_.FollowLines(false);
}

StatusOr<Value> OperandValue(Session& session, lua_State* L, int index, DType dtype) {
  Trace& trace = *session.trace;
  if (const auto* v = ToObject<TracedValue>(L, index)) {
    if (v->trace_id != trace.id()) return EndedTrace();
    return v->value;
  }
  if (const auto* p = ToObject<std::shared_ptr<ParameterData>>(L, index)) return trace.ParameterValue(*p);
  const bool tensor = ToObject<Tensor>(L, index) != nullptr;
  ASSIGN_OR_RETURN(const Tensor t,
                   ReadTensor(session, L, index, tensor ? absl::nullopt : absl::optional<DType>(dtype), "operand"));
  return tensor ? trace.TensorValue(t) : trace.Constant(t);
}

void PushValue(lua_State* L, const Trace& trace, Value value) { PushObject<TracedValue>(L, {trace.id(), value}); }

Status EndedTrace() {
  return absl::FailedPreconditionError(
      "a traced value is used after its trace has ended: construct must not keep values for later calls");
}

Status CallInTrace(Session& session, int arguments, int results) {
  Trace& trace = *session.trace;
  const size_t scopes = trace.scopes();
  const Status called = session.Call(arguments, results);
  while (trace.scopes() > scopes) trace.PopScope();
  RETURN_IF_ERROR(called);
  return trace.Check();
}

StatusOr<std::vector<Value>> CallTraced(lua_State* L, Session& session, int function, const std::vector<Value>& inputs,
                                        absl::string_view what) {
  Trace& trace = *session.trace;
  if (!lua_checkstack(L, static_cast<int>(inputs.size()) + 8))
    return absl::ResourceExhaustedError("Lua's stack is full");
  const int base = lua_gettop(L);
  lua_pushvalue(L, function);
  for (Value v : inputs) PushValue(L, trace, v);
  RETURN_IF_ERROR(CallInTrace(session, static_cast<int>(inputs.size()), LUA_MULTRET));
  std::vector<Value> outputs;
  for (int i = base + 1; i <= lua_gettop(L); ++i) {
    if (ToObject<TracedValue>(L, i) == nullptr && ToObject<std::shared_ptr<ParameterData>>(L, i) == nullptr &&
        ToObject<Tensor>(L, i) == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat(what, ": result ", i - base, " of the function should be a tensor, got ", Describe(L, i)));
    }
    ASSIGN_OR_RETURN(const Value v, OperandValue(session, L, i, DType::kF32));
    outputs.push_back(v);
  }
  lua_settop(L, base);
  if (outputs.empty())
    return absl::InvalidArgumentError(
        absl::StrCat(what, ": the function gives nothing; does construct end in a return?"));
  return outputs;
}

}  // namespace mslua
