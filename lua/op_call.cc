#include "lua/op_call.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "core/base/text.h"
#include "core/op/registry.h"
#include "lua/global_view.h"
#include "lua/number.h"
#include "lua/object.h"
#include "lua/op_attrs.h"
#include "lua/parameter.h"
#include "lua/program.h"
#include "lua/tensor_lua.h"
#include "lua/trace.h"

namespace mslua {
namespace {

using ParameterHandle = std::shared_ptr<ParameterData>;

constexpr size_t kMaxEagerPrograms = 4096;

bool IsOperand(lua_State* L, int index) {
  return ToObject<Tensor>(L, index) != nullptr || ToObject<TracedValue>(L, index) != nullptr ||
         ToObject<ParameterHandle>(L, index) != nullptr;
}

const InputDef& InputAt(const OpDef& op, size_t i) { return op.inputs[std::min(i, op.inputs.size() - 1)]; }

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

// An error where operands that must be of one element type are not: with their own shapes, for Emit broadcasts them.
// type_at(i) is the type of operand i of n.
template <class TypeAt>
Status CheckElementTypes(const OpDef& op, size_t n, TypeAt type_at) {
  size_t first = n;
  for (size_t i = 0; i < n && !op.inputs.empty(); ++i) {
    if (InputAt(op, i).type != TypeClass::kT) continue;
    if (first == n) first = i;
    const TensorType &a = type_at(first), &b = type_at(i);
    if (a.dtype == b.dtype) continue;
    // Floats hold integers, not the other way round.
    const bool to_first = IsFloat(a.dtype) || !IsFloat(b.dtype);
    return OpError(op, absl::StrCat(InputAt(op, first).name, " is ", ToString(a), " and ", InputAt(op, i).name, " is ",
                                    ToString(b), ": element types differ, and none is converted by itself; convert ",
                                    InputAt(op, to_first ? i : first).name, " with :astype(ms.",
                                    LongName((to_first ? a : b).dtype), ")"));
  }
  return absl::OkStatus();
}

bool Broadcasts(const OpDef& op) { return !op.formula.empty() && op.inputs.size() > 1; }

// Mixed precision. Operators whose time is multiplication take 16-bit operands, and give 16-bit results.
bool IsNarrow(const OpDef& op, DType narrow) {
  if (op.name == "scaled_dot_product_attention") return narrow == DType::kBF16;
  return op.name == "matmul" || op.name == "batch_matmul" || op.name == "conv2d";
}
// Operators that lose too much in 16 bits take f32 operands. All others take what comes: f32 where operands differ.
bool IsWide(const OpDef& op) {
  static const auto* names = new absl::flat_hash_set<std::string>{
      "exp",         "expm1",   "log",        "log1p",    "softplus", "pow",        "reduce_sum",
      "reduce_prod", "softmax", "layer_norm", "rms_norm", "mse_loss", "group_norm", "softmax_cross_entropy",
      "log_softmax"};
  return names->contains(op.name);
}

// Casts operands of type kT of `op` to the type that mixed precision has them compute in. Gives the type of the results
// where that is another. `numbers` says which operands are numbers of the recipe.
absl::optional<DType> MixTypes(Trace& trace, const OpDef& op, const std::vector<bool>& numbers,
                               std::vector<Value>* values) {
  const DType narrow = *trace.amp();
  GraphBuilder& g = trace.g();
  const auto type_of = [&](size_t i) { return g.TypeOf((*values)[i]).dtype; };
  const auto cast_all = [&](DType to) {
    bool any = false;
    for (size_t i = 0; i < values->size(); ++i) {
      const DType from = type_of(i);
      if (InputAt(op, i).type != TypeClass::kT || from == to || (from != narrow && from != DType::kF32)) continue;
      (*values)[i] = Cast(g, (*values)[i], to);
      any = true;
    }
    return any;
  };
  if (IsNarrow(op, narrow)) {
    // Only bf16 has kernels beyond products.
    const bool any = cast_all(narrow);
    return any && narrow != DType::kBF16 ? absl::make_optional(DType::kF32) : absl::nullopt;
  }
  bool some_narrow = false, some_wide = IsWide(op), number = false;
  for (size_t i = 0; i < values->size(); ++i) {
    if (InputAt(op, i).type != TypeClass::kT) continue;
    if (numbers[i]) {
      number = true;
      continue;
    }
    // A bias is rounded to what it is added to.
    const Node& n = g.graph().nodes[(*values)[i].node];
    const bool parameter = n.op->name == "input" && n.attrs.Str("kind") == kParameter;
    some_narrow = some_narrow || type_of(i) == narrow;
    some_wide = some_wide || (type_of(i) == DType::kF32 && !(parameter && Broadcasts(op)));
  }
  if (!some_narrow) return absl::nullopt;
  // Numbers are not rounded to 16 bits: the operator computes in f32, and its result is rounded.
  cast_all(some_wide || number ? DType::kF32 : narrow);
  return number && !some_wide ? absl::make_optional(narrow) : absl::nullopt;
}

std::vector<Value> Emit(GraphBuilder& g, const OpDef& op, const std::vector<Value>& values, Attrs attrs) {
  if (Broadcasts(op) && values.size() == op.inputs.size()) return {Elementwise(g, op.name, values, std::move(attrs))};
  return g.OpMulti(op.name, values, std::move(attrs));
}

// Attributes that say how the compiler shards an operator: kept in every mode, without effect where nothing is sharded.
struct CompilerAttrs {
  std::string in_strategy, out_strategy;
  bool cross_batch = false;
};

CompilerAttrs TakeCompilerAttrs(Session& session, const OpDef& op, Attrs* attrs) {
  CompilerAttrs wishes;
  GlobalView* const view = GlobalView::Of(session);
  if (const AttrValue* own = attrs->Find(kUserStrategy)) {
    wishes.in_strategy = std::get<std::string>(*own);
  } else if (view != nullptr) {
    const auto& at = session.trace->g().location();
    wishes.in_strategy = view->StrategyOf(absl::StrCat(at ? at->scope : "", "/", UserName(op)), at ? at->line : 0);
  }
  if (const AttrValue* out = attrs->Find(kOutStrategy)) wishes.out_strategy = std::get<std::string>(*out);
  if (const AttrValue* cross = attrs->Find(kCrossBatch)) wishes.cross_batch = std::get<bool>(*cross);
  for (const char* name : {kUserStrategy, kOutStrategy, kCrossBatch}) attrs->Erase(name);
  return view != nullptr ? wishes : CompilerAttrs();
}

// Shards the results of a call as its out_strategy says: the first ones, where it has fewer entries than there are.
Status CutResults(Trace& trace, const Mesh& mesh, const OpDef& op, const std::string& text,
                  std::vector<Value>* outputs) {
  GraphBuilder& g = trace.g();
  ASSIGN_OR_RETURN(Strategy parts, ParseStrategy(text));
  if (!trace.training()) FitTo(g.graph(), *outputs, &parts);
  const std::string what = absl::StrCat(UserName(op), ": out_strategy ", text);
  if (parts.size() > outputs->size())
    return absl::InvalidArgumentError(
        absl::StrCat(what, " has ", parts.size(), " entries, the operator has ", outputs->size(), " outputs"));
  for (size_t o = 0; o < parts.size(); ++o) {
    RETURN_IF_ERROR(CheckParts(mesh, what, absl::StrCat("output ", o + 1), g.TypeOf((*outputs)[o]), parts[o]));
    (*outputs)[o] = CutAs(g, (*outputs)[o], parts[o]);
  }
  return g.status();
}

// Values that a call takes more than once, as values of their own from the second place on: each operand has its entry
// of a strategy.
void SeparateOperands(GraphBuilder& g, std::vector<Value>* values) {
  for (size_t i = 1; i < values->size(); ++i) {
    Value& v = (*values)[i];
    if (std::find(values->begin(), values->begin() + static_cast<std::ptrdiff_t>(i), v) ==
        values->begin() + static_cast<std::ptrdiff_t>(i))
      continue;
    const Shape shape = g.TypeOf(v).shape;
    v = g.Op("reshape", {v}, {{"shape", std::vector<int64_t>(shape.begin(), shape.end())}});
  }
}

// What a call's attributes ask of the nodes that it became, [first, end of the graph).
Status Apply(const CompilerAttrs& wishes, Session& session, const OpDef& op, size_t first,
             const std::vector<Value>& operands, std::vector<Value>* outputs) {
  GraphBuilder& g = session.trace->g();
  if (!wishes.in_strategy.empty()) {
    ASSIGN_OR_RETURN(Strategy parts, ParseStrategy(wishes.in_strategy));
    if (!session.trace->training()) FitTo(g.graph(), operands, &parts);
    if (op.random) parts.emplace_back();  // the step, which users do not give
    RETURN_IF_ERROR(PinStrategy(g.graph(), first, operands, parts, UserName(op)));
  }
  for (size_t i = first; i < g.graph().nodes.size() && wishes.cross_batch; ++i) {
    Node& n = g.graph().nodes[i];
    if (n.op->name == "reduce_sum" || n.op->name == "reduce_max" || n.op->name == "reduce_min")
      n.attrs.Set(kCrossBatch, std::string(op.name == "reduce_mean" ? "mean" : "sum"));
  }
  if (wishes.out_strategy.empty()) return absl::OkStatus();
  return CutResults(*session.trace, GlobalView::Of(session)->mesh(), op, wishes.out_strategy, outputs);
}

StatusOr<int> ApplyTraced(lua_State* L, Session& session, const OpDef& op, const std::vector<int>& operands,
                          Attrs attrs) {
  Trace& trace = *session.trace;
  std::vector<DType> number_types;
  RETURN_IF_ERROR(OperandTypes(L, session, op, operands, &number_types).status());
  std::vector<Value> values;
  std::vector<bool> numbers;
  trace.Locate();
  for (size_t i = 0; i < operands.size(); ++i) {
    const bool number = !IsOperand(L, operands[i]);
    const DType dtype = number && trace.amp() == number_types[i] ? DType::kF32 : number_types[i];
    ASSIGN_OR_RETURN(const Value v, trace.ToValue(L, operands[i], dtype));
    values.push_back(v);
    numbers.push_back(number);
  }
  absl::optional<DType> result;
  if (trace.amp().has_value()) result = MixTypes(trace, op, numbers, &values);
  RETURN_IF_ERROR(
      CheckElementTypes(op, values.size(), [&](size_t i) -> const TensorType& { return trace.g().TypeOf(values[i]); }));
  CompilerAttrs wishes = TakeCompilerAttrs(session, op, &attrs);
  if (!wishes.in_strategy.empty()) SeparateOperands(trace.g(), &values);
  const size_t first = trace.g().graph().nodes.size();
  std::vector<Value> outputs = Emit(trace.g(), op, values, std::move(attrs));
  if (trace.g().status().ok()) trace.g().Fail(Apply(wishes, session, op, first, values, &outputs));
  for (Value& v : outputs) {
    const DType dtype = trace.g().status().ok() ? trace.g().TypeOf(v).dtype : DType::kBool;
    if (result && (dtype == DType::kF32 || dtype == *trace.amp())) v = Cast(trace.g(), v, *result);
  }
  RETURN_IF_ERROR(trace.Check());
  for (Value v : outputs) trace.Push(L, v);
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
      ASSIGN_OR_RETURN(Tensor t, BorrowValue(session, **p));
      data.push_back(std::move(t));
    } else {
      ASSIGN_OR_RETURN(Tensor t, ReadTensor(session, L, operands[i], number_types[i], UserName(op)));
      data.push_back(std::move(t));
    }
  }
  RETURN_IF_ERROR(CheckElementTypes(op, data.size(), [&](size_t i) -> const TensorType& { return data[i].type; }));
  std::string key = op.name;
  for (const Tensor& t : data) absl::StrAppend(&key, ",", ToString(t.type));
  for (const auto& a : attrs.items()) absl::StrAppend(&key, ";", a.first, "=", AttrText(a.second));
  auto found = session.eager_programs.find(key);
  if (found == session.eager_programs.end()) {
    GraphBuilder g(op.name);
    std::vector<Value> values;
    for (size_t i = 0; i < data.size(); ++i) values.push_back(g.Input(absl::StrCat("x", i), kData, data[i].type));
    const std::vector<Value> outputs = Emit(g, op, values, attrs);
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

size_t UserInputs(const OpDef& op) { return op.inputs.size() - (op.random ? 1 : 0); }

const std::string& UserName(const OpDef& op) { return op.class_name.empty() ? op.name : op.class_name; }

Status OpError(const OpDef& op, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(UserName(op), ": ", what));
}

StatusOr<const OpDef*> RequireOp(absl::string_view name) {
  if (const OpDef* op = Operators().Find(name)) return op;
  std::vector<std::string> names;
  for (const OpDef& op : Operators().all()) names.push_back(op.name);
  return absl::NotFoundError(
      absl::StrCat("this build has no operator '", name, "'", DidYouMean(std::string(name), names)));
}

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
    if (!attrs.Has("seed")) attrs.Set("seed", static_cast<int64_t>(session.seed));
    if (session.trace != nullptr) {
      session.trace->Push(L, session.trace->Step());
    } else {
      ASSIGN_OR_RETURN(Tensor step, NewTensor(session, {DType::kI64, {}}));
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
  std::vector<int> operands;
  int at = first;
  for (size_t i = 0; i < UserInputs(op) && at <= last; ++i) {
    if (!op.inputs[i].variadic) {
      operands.push_back(at++);
      continue;
    }
    if (lua_type(L, at) == LUA_TTABLE) {
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
