// Tracing from Lua: while a TraceScope lives, operators that Lua calls become nodes of its graph.
#pragma once

#include <string>
#include <vector>

#include "core/step/trace.h"
#include "lua/object.h"
#include "lua/session.h"
#include "lua/traced_value.h"

namespace mslua {

// The error of a value whose trace has ended.
Status EndedTrace();

// A trace that is the session's while it lives.
class TraceScope {
 public:
  TraceScope(Session& session, std::string name, bool training);
  // Each cell says whether it trains.
  TraceScope(Session& session, std::string name);
  ~TraceScope();
  TraceScope(const TraceScope&) = delete;
  TraceScope& operator=(const TraceScope&) = delete;

  Trace& trace() { return trace_; }

 private:
  Session& session_;
  Trace* const outer_;
  Trace trace_;
};

// An operand as a value of the session's trace: a traced value, a parameter (a graph input on first use), a tensor (a
// constant, or an input where the trace captures tensors), a number or boolean (a scalar of `dtype`).
StatusOr<Value> OperandValue(Session& session, lua_State* L, int index, DType dtype);
void PushValue(lua_State* L, const Trace& trace, Value value);

// Calls the function under `arguments` values on the Lua stack, and checks the session's trace.
Status CallInTrace(Session& session, int arguments, int results);
// Calls the function at `function` with `inputs` in the session's trace, and checks the trace; gives its results.
StatusOr<std::vector<Value>> CallTraced(lua_State* L, Session& session, int function, const std::vector<Value>& inputs,
                                        absl::string_view what);

}  // namespace mslua
