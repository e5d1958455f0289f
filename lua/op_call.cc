#include "lua/op_call.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "core/base/number.h"
#include "core/base/text.h"
#include "core/step/operator_call.h"
#include "core/step/parameter.h"
#include "lua/lists.h"
#include "lua/object.h"
#include "lua/op_attrs.h"
#include "lua/program.h"
#include "lua/tensor_lua.h"
#include "lua/trace_lua.h"

namespace mslua {
namespace {

using ParameterHandle = std::shared_ptr<ParameterData>;

constexpr size_t kMaxEagerPrograms = 4096;

bool IsOperand(lua_State* L, int index) {
  return ToObject<Tensor>(L, index) != nullptr || ToObject<TracedValue>(L, index) != nullptr ||
         ToObject<ParameterHandle>(L, index) != nullptr;
}

// The type that a number at each operand's place takes; absent for tensors.
StatusOr<std::vector<absl::optional<TensorType>>> OperandTypes(lua_State* L, const Session& session, const OpDef& op,
                                                               const std::vector<int>& operands,
                                                               std::vector<DType>* number_types) {
  std::vector<absl::optional<TensorType>> types;
  DType common = DType::kF32;
  bool found = false;
  for (size_t i = 0; i < operands.size(); ++i) {
    auto type = OperandType(L, session, operands[i]);
    if (!type.ok()) return OpError(op, type.status().message());
    if (type->has_value() && !found && !op.inputs.empty() && InputAt(op, i).type == TypeClass::kT) {
      common = (*type)->dtype;
      found = true;
    }
    types.push_back(*std::move(type));
  }
  number_types->assign(operands.size(), common);
  for (size_t i = 0; i < operands.size(); ++i) {
    if (types[i].has_value() || op.inputs.empty()) continue;
    const InputDef& input = InputAt(op, i);
    const int lua_type_of = lua_type(L, operands[i]);
    if (lua_type_of != LUA_TNUMBER && lua_type_of != LUA_TBOOLEAN) {
      const bool table = lua_type_of == LUA_TTABLE;
      return OpError(
          op, absl::StrCat(
                  input.name, ": expected a tensor or a number, got ", Describe(L, operands[i]),
                  table ? " (an operator is called with a dot, self.op(x); a list becomes one by ms.Tensor)" : ""));
    }
    DType& dtype = (*number_types)[i];
    if (input.type == TypeClass::kIndex)
      dtype = DType::kI32;
    else if (input.type == TypeClass::kBool)
      dtype = DType::kBool;
    else if (!found && lua_type_of == LUA_TBOOLEAN)
      dtype = DType::kBool;
    const double v = lua_tonumber(L, operands[i]);
    if (lua_type_of == LUA_TNUMBER && input.type == TypeClass::kBool && v != 0 && v != 1)
      return OpError(op, absl::StrCat(input.name, ": expected a bool tensor, got the number ", v));
    if (lua_type_of == LUA_TNUMBER && !IsFloat(dtype) && v != std::floor(v)) {
      return OpError(
          op, absl::StrCat("the number ", v, " meets ", LongName(dtype), ": cast the tensor to a float type first"));
    }
    if (lua_type_of == LUA_TNUMBER) {
      const Status held = CheckHolds(dtype, v);
      if (!held.ok()) return OpError(op, absl::StrCat(held.message(), ": cast the tensor first"));
    }
  }
  return types;
}

StatusOr<int> ApplyTraced(lua_State* L, Session& session, const OpDef& op, const std::vector<int>& operands,
                          Attrs attrs) {
  Trace& trace = *session.trace;
  std::vector<DType> number_types;
  RETURN_IF_ERROR(OperandTypes(L, session, op, operands, &number_types).status());
  std::vector<Value> values;
  std::vector<bool> numbers;
  trace.Locate(*session.Where());
  for (size_t i = 0; i < operands.size(); ++i) {
    const bool number = !IsOperand(L, operands[i]);
    const DType dtype = number && trace.amp() == number_types[i] ? DType::kF32 : number_types[i];
    ASSIGN_OR_RETURN(const Value v, OperandValue(session, L, operands[i], dtype));
    values.push_back(v);
    numbers.push_back(number);
  }
  ASSIGN_OR_RETURN(const std::vector<Value> outputs,
                   CallOperator(session.state(), trace, op, std::move(values), numbers, std::move(attrs)));
  for (Value v : outputs) PushValue(L, trace, v);
  return static_cast<int>(outputs.size());
}

StatusOr<int> ApplyEager(lua_State* L, Session& session, const OpDef& op, const std::vector<int>& operands,
                         Attrs attrs) {
  std::vector<DType> number_types;
  ASSIGN_OR_RETURN(const auto types, OperandTypes(L, session, op, operands, &number_types));
  std::vector<Tensor> data;
  for (size_t i = 0; i < operands.size(); ++i) {
    if (const auto* t = ToObject<Tensor>(L, operands[i])) {
      data.push_back(*t);
    } else if (const auto* p = ToObject<ParameterHandle>(L, operands[i])) {
      ASSIGN_OR_RETURN(Tensor t, BorrowValue(session.state(), **p));
      data.push_back(std::move(t));
    } else {
      ASSIGN_OR_RETURN(Tensor t, ReadTensor(session, L, operands[i], number_types[i], UserName(op)));
      data.push_back(std::move(t));
    }
  }
  RETURN_IF_ERROR(CheckElementTypes(
      op, data.size(), [&](size_t i) { return data[i].type; },
      [&](size_t i) { return ToObject<ParameterHandle>(L, operands[i]) != nullptr; }));
  // Tensors do not change: two may have one memory. A parameter's does.
  const bool same = op.name == "stop_gradient" ||
                    (op.name == "cast" && attrs.Has("dtype") && attrs.Type("dtype") == data[0].type.dtype);
  if (same && ToObject<Tensor>(L, operands[0]) != nullptr) {
    PushObject<Tensor>(L, data[0]);
    return 1;
  }
  std::string key = op.name;
  for (const Tensor& t : data) absl::StrAppend(&key, ",", ToString(t.type));
  for (const auto& a : attrs.items()) absl::StrAppend(&key, ";", a.first, "=", AttrText(a.second));
  auto found = session.eager_programs.find(key);
  if (found == session.eager_programs.end()) {
    GraphBuilder g(op.name);
    std::vector<Value> values;
    for (size_t i = 0; i < data.size(); ++i) values.push_back(g.Input(absl::StrCat("x", i), kData, data[i].type));
    const std::vector<Value> outputs = EmitOperator(g, op, values, attrs);
    for (size_t i = 0; i < outputs.size(); ++i) g.Output(absl::StrCat("y", i), outputs[i]);
    ASSIGN_OR_RETURN(const Graph graph, g.Finish());
    ASSIGN_OR_RETURN(auto program, Program::Compile(session, graph, {}));
    // Forgetting all is simple and rare.
    if (session.eager_programs.size() >= kMaxEagerPrograms) session.eager_programs.clear();
    found = session.eager_programs.emplace(key, std::move(program)).first;
  }
  ASSIGN_OR_RETURN(std::vector<Tensor> outputs, found->second->Run(session, data));
  for (Tensor& t : outputs) PushObject<Tensor>(L, std::move(t));
  return static_cast<int>(outputs.size());
}

}  // namespace

StatusOr<absl::optional<TensorType>> OperandType(lua_State* L, const Session& session, int index) {
  if (const auto* t = ToObject<Tensor>(L, index)) {
    if (t->data == nullptr) return absl::FailedPreconditionError("the Tensor was freed");
    return absl::make_optional(t->type);
  }
  if (const auto* p = ToObject<ParameterHandle>(L, index)) return absl::make_optional((*p)->type);
  if (const auto* v = ToObject<TracedValue>(L, index)) {
    if (session.trace == nullptr || v->trace_id != session.trace->id()) {
      return absl::FailedPreconditionError(
          "a traced value is used after its trace has ended: construct must not keep values for later calls");
    }
    return absl::make_optional(session.trace->g().TypeOf(v->value));
  }
  return absl::optional<TensorType>();
}

StatusOr<int> Apply(lua_State* L, Session& session, const OpDef& op, const std::vector<int>& given, Attrs attrs) {
  std::vector<int> operands = given;
  if (op.random) {
    // Numbers of their own in every step of a graph, and in every eager call.
    if (!attrs.Has("seed")) attrs.Set("seed", static_cast<int64_t>(session.state().seed));
    if (session.trace != nullptr) {
      PushValue(L, *session.trace, session.trace->Step());
    } else {
      ASSIGN_OR_RETURN(Tensor step, NewTensor(session.allocator(), {DType::kI64, {}}));
      *static_cast<int64_t*>(step.data.get()) = static_cast<int64_t>(session.random_tensors++);
      PushObject<Tensor>(L, std::move(step));
    }
    operands.push_back(lua_gettop(L));
  }
  return session.trace != nullptr ? ApplyTraced(L, session, op, operands, std::move(attrs))
                                  : ApplyEager(L, session, op, operands, std::move(attrs));
}

StatusOr<int> Apply(lua_State* L, Session& session, absl::string_view name, const std::vector<int>& operands,
                    Attrs attrs) {
  ASSIGN_OR_RETURN(const OpDef* op, RequireOp(name));
  return Apply(L, session, *op, operands, std::move(attrs));
}

StatusOr<int> CallOperator(lua_State* L, Session& session, const OpDef& op, int first, int last, Attrs attrs) {
  if (first <= last && lua_type(L, first) == LUA_TTABLE && luaL_getmetafield(L, first, "__module")) {
    return OpError(op, absl::StrCat("the first operand is the module ", lua_tostring(L, -1), ": call with a dot, ops.",
                                    op.name, "(x), not ops:", op.name, "(x)"));
  }
  std::vector<int> operands;
  int at = first;
  // An equation may stand before its tensors, as in other libraries.
  const bool leads = at < last && last == lua_gettop(L) && lua_type(L, at) == LUA_TSTRING && !op.inputs.empty() &&
                     op.inputs[0].variadic && !op.attrs.empty() && op.attrs[0].kind == AttrKind::kString;
  if (leads) {
    lua_pushvalue(L, at);
    lua_remove(L, at);
  }
  for (size_t i = 0; i < UserInputs(op) && at <= last; ++i) {
    if (!op.inputs[i].variadic) {
      operands.push_back(at++);
      continue;
    }
    if (lua_type(L, at) == LUA_TTABLE) {
      RETURN_IF_ERROR(CheckList(L, at, UserName(op)));
      const int n = static_cast<int>(lua_objlen(L, at));
      if (!lua_checkstack(L, n + 16)) return absl::ResourceExhaustedError("Lua's stack is full");
      const int list = at++;
      for (int k = 1; k <= n; ++k) {
        lua_rawgeti(L, list, k);
        operands.push_back(lua_gettop(L));
      }
    } else {
      while (at <= last && IsOperand(L, at)) operands.push_back(at++);
    }
  }
  RETURN_IF_ERROR(ReadAttrs(L, op, at, last, &attrs));
  return Apply(L, session, op, operands, std::move(attrs));
}

}  // namespace mslua
