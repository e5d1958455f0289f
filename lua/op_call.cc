#include "lua/op_call.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "core/base/text.h"
#include "core/op/registry.h"
#include "lua/global_view.h"
#include "lua/object.h"
#include "lua/parameter.h"
#include "lua/program.h"
#include "lua/tensor_lua.h"
#include "lua/trace.h"

namespace mslua {
namespace {

using ParameterHandle = std::shared_ptr<ParameterData>;

constexpr size_t kMaxEagerPrograms = 4096;
constexpr char kMethods[] = "mslua.methods";
constexpr char kShape[] = "mslua.shape";  // the metatable of shapes, which mslua/shape.lua fills

// An axis that the operator makes is none of its input's, so it is an integer there; for Lua it counts as all axes do.
AttrKind KindForLua(const AttrDef& attr) {
  return attr.kind == AttrKind::kInt && attr.name == "axis" ? AttrKind::kAxis : attr.kind;
}

Status OpError(const OpDef& op, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(UserName(op), ": ", what));
}

// The type of an operand that is a tensor of some kind.
StatusOr<absl::optional<TensorType>> TypeAt(lua_State* L, const Session& session, int index) {
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
    auto type = TypeAt(L, session, operands[i]);
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
  }
  return types;
}

// Random operators end in an input `step`, which users do not give.
size_t UserInputs(const OpDef& op) { return op.inputs.size() - (op.random ? 1 : 0); }

bool Broadcasts(const OpDef& op) { return !op.formula.empty() && op.inputs.size() > 1; }

// Mixed precision. Operators whose time is multiplication take 16-bit operands, and give 16-bit results.
bool IsNarrow(const OpDef& op, DType narrow) {
  if (op.name == "scaled_dot_product_attention") return narrow == DType::kBF16;
  return op.name == "matmul" || op.name == "batch_matmul" || op.name == "conv2d";
}
// Operators that lose too much in 16 bits take f32 operands. All others take what comes: f32 where operands differ.
bool IsWide(const OpDef& op) {
  static const auto* names = new absl::flat_hash_set<std::string>{
      "exp",        "log",      "pow",      "reduce_sum", "reduce_prod",           "softmax",
      "layer_norm", "rms_norm", "mse_loss", "group_norm", "softmax_cross_entropy", "log_softmax"};
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

// Attributes that say how the compiler cuts an operator: kept in every mode, without effect where nothing is cut.
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
    wishes.in_strategy = view->StrategyOf(absl::StrCat(at ? at->scope : "", "/", UserName(op)));
  }
  if (const AttrValue* out = attrs->Find(kOutStrategy)) wishes.out_strategy = std::get<std::string>(*out);
  if (const AttrValue* cross = attrs->Find(kCrossBatch)) wishes.cross_batch = std::get<bool>(*cross);
  for (const char* name : {kUserStrategy, kOutStrategy, kCrossBatch}) attrs->Erase(name);
  return view != nullptr ? wishes : CompilerAttrs();
}

// Cuts the results of a call as its out_strategy says.
Status CutResults(GraphBuilder& g, const Mesh& mesh, const OpDef& op, const std::string& text,
                  std::vector<Value>* outputs) {
  ASSIGN_OR_RETURN(const Strategy parts, ParseStrategy(text));
  const std::string what = absl::StrCat(UserName(op), ": out_strategy ", text);
  if (parts.size() != outputs->size())
    return absl::InvalidArgumentError(
        absl::StrCat(what, " has ", parts.size(), " entries, the operator has ", outputs->size(), " outputs"));
  for (size_t o = 0; o < parts.size(); ++o) {
    RETURN_IF_ERROR(CheckParts(mesh, what, absl::StrCat("output ", o + 1), g.TypeOf((*outputs)[o]), parts[o]));
    (*outputs)[o] = CutAs(g, (*outputs)[o], parts[o]);
  }
  return g.status();
}

// What a call's attributes ask of the nodes that it became, [first, end of the graph).
Status Apply(const CompilerAttrs& wishes, Session& session, const OpDef& op, size_t first,
             const std::vector<Value>& operands, std::vector<Value>* outputs) {
  GraphBuilder& g = session.trace->g();
  if (!wishes.in_strategy.empty()) {
    ASSIGN_OR_RETURN(Strategy parts, ParseStrategy(wishes.in_strategy));
    if (op.random) parts.emplace_back();  // the step, which users do not give
    RETURN_IF_ERROR(PinStrategy(g.graph(), first, operands, parts, UserName(op)));
  }
  for (size_t i = first; i < g.graph().nodes.size() && wishes.cross_batch; ++i) {
    Node& n = g.graph().nodes[i];
    if (n.op->name == "reduce_sum" || n.op->name == "reduce_max" || n.op->name == "reduce_min")
      n.attrs.Set(kCrossBatch, std::string(op.name == "reduce_mean" ? "mean" : "sum"));
  }
  if (wishes.out_strategy.empty()) return absl::OkStatus();
  return CutResults(g, GlobalView::Of(session)->mesh(), op, wishes.out_strategy, outputs);
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
  CompilerAttrs wishes = TakeCompilerAttrs(session, op, &attrs);
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

const OpDef* FindOp(absl::string_view name) { return Operators().Find(name); }

StatusOr<const OpDef*> RequireOp(absl::string_view name) {
  if (const OpDef* op = FindOp(name)) return op;
  std::vector<std::string> names;
  for (const OpDef& op : Operators().all()) names.push_back(op.name);
  return absl::NotFoundError(
      absl::StrCat("this build has no operator '", name, "'", DidYouMean(std::string(name), names)));
}

std::vector<std::string> AttrNames(const OpDef& op) {
  std::vector<std::string> names;
  for (const AttrDef& a : op.attrs) names.push_back(a.name);
  return names;
}

// An attribute of the compiler's own, "_in_strategy": whatever it is.
StatusOr<AttrValue> ReadFreeAttr(lua_State* L, int index, absl::string_view what) {
  switch (lua_type(L, index)) {
    case LUA_TBOOLEAN:
      return AttrValue(lua_toboolean(L, index) != 0);
    case LUA_TNUMBER: {
      const double d = lua_tonumber(L, index);
      if (d == std::floor(d) && std::fabs(d) < 9e15) return AttrValue(static_cast<int64_t>(d));
      return AttrValue(d);
    }
    case LUA_TSTRING:
      return AttrValue(std::string(lua_tostring(L, index)));
    default: {
      ASSIGN_OR_RETURN(std::vector<int64_t> ints, ReadInts(L, index, what));
      return AttrValue(std::move(ints));
    }
  }
}

// Named attributes from the table at `index`.
Status ReadNamedAttrs(lua_State* L, int index, const OpDef& op, Attrs* attrs) {
  const StackGuard guard(L);
  index = AbsoluteIndex(L, index);
  lua_pushnil(L);
  while (lua_next(L, index)) {
    if (lua_type(L, -2) != LUA_TSTRING)
      return OpError(op, absl::StrCat("attributes are named; got the key ", Describe(L, -2)));
    const std::string name = lua_tostring(L, -2);
    const auto def = std::find_if(op.attrs.begin(), op.attrs.end(), [&](const AttrDef& a) { return a.name == name; });
    if (def != op.attrs.end()) {
      ASSIGN_OR_RETURN(AttrValue v, ReadAttr(L, lua_gettop(L), op, *def));
      attrs->Set(name, std::move(v));
    } else if (name[0] == '_') {
      ASSIGN_OR_RETURN(AttrValue v, ReadFreeAttr(L, lua_gettop(L), name));
      attrs->Set(name, std::move(v));
    } else {
      return OpError(op, absl::StrCat("unknown attribute '", name, "'", DidYouMean(name, AttrNames(op))));
    }
    lua_pop(L, 1);
  }
  return absl::OkStatus();
}

// A plain table of named values (no list part), as the last argument.
bool IsNamedTable(lua_State* L, int index) {
  if (lua_type(L, index) != LUA_TTABLE || lua_objlen(L, index) > 0) return false;
  lua_pushnil(L);
  const bool any = lua_next(L, AbsoluteIndex(L, index - (index < 0 ? 1 : 0))) != 0;
  if (any) lua_pop(L, 2);
  return true;
}

// Positional attributes at [first, last], then a table of named ones. nil leaves one out.
Status ReadAttrs(lua_State* L, const OpDef& op, int first, int last, Attrs* attrs) {
  while (last >= first && lua_isnil(L, last)) --last;
  size_t next = 0;
  for (int i = first; i <= last; ++i) {
    if (i == last && IsNamedTable(L, i)) return ReadNamedAttrs(L, i, op, attrs);
    if (next >= op.attrs.size()) {
      return OpError(op, absl::StrCat("takes ", UserInputs(op), " tensors and ", op.attrs.size(),
                                      " attributes, and got ", Describe(L, i), " after them"));
    }
    const AttrDef& def = op.attrs[next++];
    if (lua_isnil(L, i)) continue;
    ASSIGN_OR_RETURN(AttrValue v, ReadAttr(L, i, op, def));
    attrs->Set(def.name, std::move(v));
  }
  return absl::OkStatus();
}

// Calls `op` with the arguments at [first, last]: operands, then attributes. `attrs` holds those that are known
// already.
StatusOr<int> CallWith(lua_State* L, Session& session, const OpDef& op, int first, int last, Attrs attrs) {
  std::vector<int> operands;
  int at = first;
  for (size_t i = 0; i < UserInputs(op) && at <= last; ++i) {
    if (!op.inputs[i].variadic) {
      operands.push_back(at++);
      continue;
    }
    if (lua_type(L, at) == LUA_TTABLE) {
      const int n = static_cast<int>(lua_objlen(L, at));
      if (!lua_checkstack(L, n + 16)) return absl::ResourceExhaustedError("no room on Lua's stack");
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

// core.op(name, args, attrs)
StatusOr<int> CallOp(lua_State* L, Session& session) {
  ASSIGN_OR_RETURN(const std::string name, ReadString(L, 1, "op: name"));
  ASSIGN_OR_RETURN(const OpDef* op, RequireOp(name));
  if (lua_type(L, 2) != LUA_TTABLE)
    return OpError(*op, absl::StrCat("arguments: expected a list, got ", Describe(L, 2)));
  Attrs attrs;
  if (!lua_isnoneornil(L, 3)) {
    if (lua_type(L, 3) != LUA_TTABLE)
      return OpError(*op, absl::StrCat("attributes: expected a table, got ", Describe(L, 3)));
    RETURN_IF_ERROR(ReadNamedAttrs(L, 3, *op, &attrs));
  }
  ASSIGN_OR_RETURN(const int64_t n, FieldInt(L, 2, "n", static_cast<int64_t>(lua_objlen(L, 2))));
  if (n < 0 || n > 8000 || !lua_checkstack(L, static_cast<int>(n) + 16)) return OpError(*op, "too many arguments");
  const int first = lua_gettop(L) + 1;
  for (int i = 1; i <= n; ++i) lua_rawgeti(L, 2, i);
  return CallWith(L, session, *op, first, lua_gettop(L), std::move(attrs));
}

// core.functions.NAME(...)
StatusOr<int> CallFunction(lua_State* L, Session& session) {
  const auto* op = static_cast<const OpDef*>(lua_touserdata(L, lua_upvalueindex(1)));
  return CallWith(L, session, *op, 1, lua_gettop(L), {});
}

// core.bind_attrs(name, args)
StatusOr<int> BindAttrs(lua_State* L, Session&) {
  ASSIGN_OR_RETURN(const std::string name, ReadString(L, 1, "bind_attrs: name"));
  ASSIGN_OR_RETURN(const OpDef* op, RequireOp(name));
  if (lua_type(L, 2) != LUA_TTABLE)
    return OpError(*op, absl::StrCat("expected a list of arguments, got ", Describe(L, 2)));
  ASSIGN_OR_RETURN(const int64_t n, FieldInt(L, 2, "n", static_cast<int64_t>(lua_objlen(L, 2))));
  if (n < 0 || n > 100) return OpError(*op, "too many arguments");
  const int first = lua_gettop(L) + 1;
  for (int i = 1; i <= n; ++i) lua_rawgeti(L, 2, i);
  Attrs attrs;
  RETURN_IF_ERROR(ReadAttrs(L, *op, first, lua_gettop(L), &attrs));
  lua_newtable(L);
  for (const auto& a : attrs.items()) {
    const auto def =
        std::find_if(op->attrs.begin(), op->attrs.end(), [&](const AttrDef& d) { return d.name == a.first; });
    PushAttr(L, def == op->attrs.end() ? AttrKind::kInts : KindForLua(*def), a.second);
    lua_setfield(L, -2, a.first.c_str());
  }
  return 1;
}

const char* KindText(AttrKind kind) {
  constexpr const char* kNames[] = {"bool", "int", "float", "string", "ints", "dtype", "axis", "axes"};
  return kNames[static_cast<int>(kind)];
}
const char* ClassText(TypeClass c) {
  constexpr const char* kNames[] = {"T", "index", "bool", "float", "any"};
  return kNames[static_cast<int>(c)];
}

void PushOpInfo(lua_State* L, const OpDef& op) {
  const auto set = [L](const char* key, absl::string_view text) {
    PushString(L, text);
    lua_setfield(L, -2, key);
  };
  const auto flag = [L](const char* key, bool on) {
    lua_pushboolean(L, on);
    lua_setfield(L, -2, key);
  };
  lua_newtable(L);
  set("name", op.name);
  if (!op.class_name.empty()) set("class", op.class_name);
  set("doc", op.doc);
  flag("elementwise", !op.formula.empty());
  flag("random", op.random);
  lua_newtable(L);
  for (size_t i = 0; i < UserInputs(op); ++i) {
    lua_newtable(L);
    set("name", op.inputs[i].name);
    set("type", ClassText(op.inputs[i].type));
    flag("variadic", op.inputs[i].variadic);
    lua_rawseti(L, -2, static_cast<int>(i) + 1);
  }
  lua_setfield(L, -2, "inputs");
  lua_newtable(L);
  for (size_t i = 0; i < op.attrs.size(); ++i) {
    const AttrDef& a = op.attrs[i];
    lua_newtable(L);
    set("name", a.name);
    set("kind", KindText(KindForLua(a)));
    set("doc", a.doc);
    flag("required", a.required);
    if (!a.required) {
      PushAttr(L, KindForLua(a), a.fallback);
      lua_setfield(L, -2, "default");
    }
    if (!a.choices.empty()) {
      lua_newtable(L);
      for (size_t k = 0; k < a.choices.size(); ++k) {
        PushString(L, a.choices[k]);
        lua_rawseti(L, -2, static_cast<int>(k) + 1);
      }
      lua_setfield(L, -2, "choices");
    }
    lua_rawseti(L, -2, static_cast<int>(i) + 1);
  }
  lua_setfield(L, -2, "attrs");
  lua_newtable(L);
  for (size_t i = 0; i < op.outputs.size(); ++i) {
    PushString(L, op.outputs[i]);
    lua_rawseti(L, -2, static_cast<int>(i) + 1);
  }
  lua_setfield(L, -2, "outputs");
}

StatusOr<int> ListOps(lua_State* L, Session&) {
  lua_newtable(L);
  int n = 0;
  for (const OpDef& op : Operators().all()) {
    PushOpInfo(L, op);
    lua_rawseti(L, -2, ++n);
  }
  return 1;
}

// core.functions: closures are made on first use, so that a start does not pay for all of them.
StatusOr<int> FindFunction(lua_State* L, Session&) {
  ASSIGN_OR_RETURN(const std::string name, ReadString(L, 2, "functions: name"));
  const OpDef* op = FindOp(name);
  if (op == nullptr) {
    lua_pushnil(L);
    return 1;
  }
  lua_pushlightuserdata(L, const_cast<OpDef*>(op));
  lua_pushcclosure(L, Entry<CallFunction>, 1);
  lua_pushvalue(L, -1);
  lua_setfield(L, 1, name.c_str());
  return 1;
}

// -------------------------------------------------------------------------------------------- metamethods

StatusOr<int> Arithmetic(lua_State* L, Session& session) {
  const char* name = lua_tostring(L, lua_upvalueindex(1));
  if (std::strcmp(name, "pow") == 0 && lua_type(L, 2) == LUA_TNUMBER && lua_tonumber(L, 2) == 2)
    return Apply(L, session, "mul", {1, 1}, {});
  return Apply(L, session, name, {1, 2}, {});
}
StatusOr<int> Negate(lua_State* L, Session& session) { return Apply(L, session, "neg", {1}, {}); }

StatusOr<int> Compare(lua_State* L, Session& session) {
  if (session.trace != nullptr) {
    return absl::InvalidArgumentError(
        "< and <= on traced values: Lua's conditions run while the graph is traced; use ops.Less or ops.LessEqual, and "
        "ops.Select");
  }
  return absl::InvalidArgumentError(
      "< and <= on tensors: use ops.Less or ops.LessEqual, or compare numbers, a:item() < b:item()");
}

StatusOr<int> Length(lua_State* L, Session& session) {
  ASSIGN_OR_RETURN(const auto type, TypeAt(L, session, 1));
  if (!type.has_value()) return absl::InvalidArgumentError("expected a tensor");
  if (type->rank() == 0) return absl::InvalidArgumentError("# of a scalar: it has no dimension");
  lua_pushnumber(L, static_cast<double>(type->shape[0]));
  return 1;
}

// ------------------------------------------------------------------------------------------------- methods

StatusOr<TensorType> SelfType(lua_State* L, Session& session, absl::string_view method) {
  ASSIGN_OR_RETURN(const auto type, TypeAt(L, session, 1));
  if (!type.has_value())
    return absl::InvalidArgumentError(
        absl::StrCat(method, ": expected a tensor before the colon, got ", Describe(L, 1)));
  return *type;
}

// The tensor at 1 as an eager one: shared, or a copy of a parameter.
StatusOr<Tensor> SelfTensor(lua_State* L, Session& session, absl::string_view method) {
  if (ToObject<TracedValue>(L, 1) != nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(method,
                                                   " of a traced value: it has no elements while the graph is traced; "
                                                   "use ops.Select for a choice, or return it from construct"));
  }
  return ReadTensor(session, L, 1, absl::nullopt, method);
}

StatusOr<int> AsType(lua_State* L, Session& session) {
  RETURN_IF_ERROR(SelfType(L, session, "astype").status());
  ASSIGN_OR_RETURN(const DType dtype, ReadDType(L, 2, "astype"));
  if (session.trace != nullptr) return Apply(L, session, "cast", {1}, {{"dtype", dtype}});
  ASSIGN_OR_RETURN(const Tensor t, SelfTensor(L, session, "astype"));
  ASSIGN_OR_RETURN(Tensor out, CastTensor(session, t, dtype));
  PushObject<Tensor>(L, std::move(out));
  return 1;
}

// Integers from argument 2 on, or a list there.
StatusOr<std::vector<int64_t>> RestInts(lua_State* L, absl::string_view what) {
  if (lua_type(L, 2) == LUA_TTABLE) return ReadInts(L, 2, what);
  std::vector<int64_t> out;
  for (int i = 2; i <= lua_gettop(L); ++i) {
    ASSIGN_OR_RETURN(const int64_t v, ReadInt(L, i, what));
    out.push_back(v);
  }
  return out;
}

StatusOr<int> ReshapeMethod(lua_State* L, Session& session) {
  ASSIGN_OR_RETURN(const TensorType type, SelfType(L, session, "reshape"));
  ASSIGN_OR_RETURN(std::vector<int64_t> shape, RestInts(L, "reshape"));
  int64_t known = 1, open = -1;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == -1 && open < 0)
      open = static_cast<int64_t>(i);
    else if (shape[i] < 0)
      return absl::InvalidArgumentError(
          absl::StrCat("reshape: ", ToString(absl::MakeConstSpan(shape)), " is not a shape (one size may be -1)"));
    else
      known *= shape[i];
  }
  if (open >= 0) {
    if (known == 0 || type.elements() % known != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("reshape: ", ToString(type), " does not divide into ", ToString(absl::MakeConstSpan(shape))));
    }
    shape[static_cast<size_t>(open)] = type.elements() / known;
  } else if (known != type.elements()) {
    return absl::InvalidArgumentError(absl::StrCat("reshape: ", ToString(type), " has ", type.elements(), " elements, ",
                                                   ToString(absl::MakeConstSpan(shape)), " has ", known));
  }
  if (shape.size() > kMaxRank)
    return absl::InvalidArgumentError(absl::StrCat("reshape: more than ", kMaxRank, " dimensions"));
  if (session.trace != nullptr) return Apply(L, session, "reshape", {1}, {{"shape", shape}});
  ASSIGN_OR_RETURN(const Tensor t, SelfTensor(L, session, "reshape"));
  PushObject<Tensor>(L, WithShape(t, Shape(shape.begin(), shape.end())));
  return 1;
}

StatusOr<int> TransposeMethod(lua_State* L, Session& session) {
  ASSIGN_OR_RETURN(const TensorType type, SelfType(L, session, "transpose"));
  ASSIGN_OR_RETURN(std::vector<int64_t> axes, RestInts(L, "transpose"));
  if (axes.empty()) {
    for (int64_t d = type.rank(); d >= 1; --d) axes.push_back(d);
  }
  for (int64_t& a : axes) {
    ASSIGN_OR_RETURN(a, AxisFromLua(a, "transpose"));
  }
  return Apply(L, session, "transpose", {1}, {{"perm", axes}});
}

// sum(axis?, keep_dims?) and its like: without an axis, over all.
StatusOr<int> ReduceMethod(lua_State* L, Session& session) {
  const char* op = lua_tostring(L, lua_upvalueindex(1));
  ASSIGN_OR_RETURN(const TensorType type, SelfType(L, session, op));
  std::vector<int64_t> axes;
  if (lua_isnoneornil(L, 2)) {
    for (int64_t d = 1; d <= type.rank(); ++d) axes.push_back(d);
  } else {
    ASSIGN_OR_RETURN(axes, ReadInts(L, 2, absl::StrCat(op, ": axis")));
  }
  for (int64_t& a : axes) {
    ASSIGN_OR_RETURN(a, AxisFromLua(a, op));
  }
  bool keep = false;
  if (!lua_isnoneornil(L, 3)) {
    ASSIGN_OR_RETURN(keep, ReadBool(L, 3, absl::StrCat(op, ": keep_dims")));
  }
  return Apply(L, session, op, {1}, {{"axis", axes}, {"keep_dims", keep}});
}

StatusOr<int> ArgmaxMethod(lua_State* L, Session& session) {
  ASSIGN_OR_RETURN(const TensorType type, SelfType(L, session, "argmax"));
  ASSIGN_OR_RETURN(const OpDef* op, RequireOp("argmax"));
  if (lua_isnoneornil(L, 2) && type.rank() != 1) {
    // Over all elements, as NumPy does.
    lua_settop(L, 1);
    lua_pushnumber(L, -1);
    ASSIGN_OR_RETURN(const int pushed, ReshapeMethod(L, session));
    lua_replace(L, 1);
    lua_settop(L, pushed);
  }
  return CallWith(L, session, *op, 1, lua_gettop(L), {});
}

Status PushNested(lua_State* L, const Tensor& t) {
  if (t.type.rank() == 0) {
    PushElement(L, t.view(), 0);
    return absl::OkStatus();
  }
  if (!lua_checkstack(L, 4)) return absl::ResourceExhaustedError("no room on Lua's stack");
  const int64_t n = t.type.shape[0];
  lua_createtable(L, static_cast<int>(n), 0);
  for (int64_t i = 0; i < n; ++i) {
    RETURN_IF_ERROR(PushNested(L, SubTensor(t, i)));
    lua_rawseti(L, -2, static_cast<int>(i) + 1);
  }
  return absl::OkStatus();
}

StatusOr<int> ToTable(lua_State* L, Session& session) {
  ASSIGN_OR_RETURN(const Tensor t, SelfTensor(L, session, "totable"));
  RETURN_IF_ERROR(PushNested(L, t));
  return 1;
}

StatusOr<int> Item(lua_State* L, Session& session) {
  ASSIGN_OR_RETURN(const Tensor t, SelfTensor(L, session, ":item()"));
  if (t.type.elements() != 1)
    return absl::InvalidArgumentError(
        absl::StrCat("item: ", ToString(t.type), " has ", t.type.elements(), " elements, expected one"));
  PushElement(L, t.view(), 0);
  return 1;
}

StatusOr<int> FreeTensor(lua_State* L, Session&) {
  if (auto* t = ToObject<Tensor>(L, 1)) t->data.reset();
  return 0;
}

StatusOr<int> NumDims(lua_State* L, Session& session) {
  ASSIGN_OR_RETURN(const TensorType type, SelfType(L, session, "ndim"));
  lua_pushnumber(L, static_cast<double>(type.rank()));
  return 1;
}

}  // namespace

const std::string& UserName(const OpDef& op) { return op.class_name.empty() ? op.name : op.class_name; }

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

StatusOr<AttrValue> ReadAttr(lua_State* L, int index, const OpDef& op, const AttrDef& attr) {
  const std::string what = absl::StrCat(UserName(op), ": attribute '", attr.name, "'");
  switch (KindForLua(attr)) {
    case AttrKind::kBool: {
      ASSIGN_OR_RETURN(const bool v, ReadBool(L, index, what));
      return AttrValue(v);
    }
    case AttrKind::kInt: {
      ASSIGN_OR_RETURN(const int64_t v, ReadInt(L, index, what));
      return AttrValue(v);
    }
    case AttrKind::kFloat: {
      ASSIGN_OR_RETURN(const double v, ReadNumber(L, index, what));
      return AttrValue(v);
    }
    case AttrKind::kString: {
      ASSIGN_OR_RETURN(std::string v, ReadString(L, index, what));
      return AttrValue(std::move(v));
    }
    case AttrKind::kDType: {
      ASSIGN_OR_RETURN(const DType v, ReadDType(L, index, what));
      return AttrValue(v);
    }
    case AttrKind::kInts: {
      ASSIGN_OR_RETURN(std::vector<int64_t> v, ReadInts(L, index, what));
      return AttrValue(std::move(v));
    }
    case AttrKind::kAxis: {
      ASSIGN_OR_RETURN(const int64_t v, ReadInt(L, index, what));
      ASSIGN_OR_RETURN(const int64_t axis, AxisFromLua(v, what));
      return AttrValue(axis);
    }
    case AttrKind::kAxes: {
      ASSIGN_OR_RETURN(std::vector<int64_t> v, ReadInts(L, index, what));
      for (int64_t& a : v) {
        ASSIGN_OR_RETURN(a, AxisFromLua(a, what));
      }
      return AttrValue(std::move(v));
    }
  }
  return absl::InternalError("unknown kind of attribute");
}

void PushAttr(lua_State* L, AttrKind kind, const AttrValue& value) {
  const bool axis = kind == AttrKind::kAxis || kind == AttrKind::kAxes;
  const auto count = [axis](int64_t v) { return axis && v >= 0 ? v + 1 : v; };
  if (const bool* b = std::get_if<bool>(&value)) {
    lua_pushboolean(L, *b);
  } else if (const int64_t* i = std::get_if<int64_t>(&value)) {
    lua_pushnumber(L, static_cast<double>(count(*i)));
  } else if (const double* d = std::get_if<double>(&value)) {
    lua_pushnumber(L, *d);
  } else if (const std::string* s = std::get_if<std::string>(&value)) {
    PushString(L, *s);
  } else if (const DType* t = std::get_if<DType>(&value)) {
    lua_pushstring(L, LongName(*t));
  } else {
    std::vector<int64_t> ints = std::get<std::vector<int64_t>>(value);
    for (int64_t& v : ints) v = count(v);
    PushInts(L, ints);
  }
}

StatusOr<int> GetTensorField(lua_State* L, const TensorType& type) {
  const absl::string_view field = lua_tostring(L, 2);
  if (field == "shape") {
    PushInts(L, type.shape);
    lua_getfield(L, LUA_REGISTRYINDEX, kShape);
    lua_setmetatable(L, -2);
  } else if (field == "dtype") {
    lua_pushstring(L, LongName(type.dtype));
  } else if (field == "size") {
    lua_pushnumber(L, static_cast<double>(type.elements()));
  } else {
    lua_getfield(L, LUA_REGISTRYINDEX, kMethods);
    lua_pushvalue(L, 2);
    lua_rawget(L, -2);
  }
  return 1;
}

StatusOr<int> IndexOperand(lua_State* L, Session& session) {
  ASSIGN_OR_RETURN(const TensorType type, SelfType(L, session, "subscript"));
  ASSIGN_OR_RETURN(int64_t i, ReadInt(L, 2, "subscript"));
  if (type.rank() == 0) return absl::InvalidArgumentError(absl::StrCat("subscript ", i, " of a scalar: use :item()"));
  const int64_t n = type.shape[0];
  if (i == 0 || i > n || i < -n) {
    return absl::OutOfRangeError(absl::StrCat("subscript ", i, " of ", ToString(type), ": expected 1 to ", n,
                                              ", or -1 to -", n, " from the end"));
  }
  i = i > 0 ? i - 1 : n + i;
  if (session.trace != nullptr) {
    std::vector<int64_t> begin(static_cast<size_t>(type.rank()), 0), end(type.shape.begin(), type.shape.end());
    const std::vector<int64_t> strides(begin.size(), 1), rest(type.shape.begin() + 1, type.shape.end());
    begin[0] = i;
    end[0] = i + 1;
    ASSIGN_OR_RETURN(const int pushed,
                     Apply(L, session, "strided_slice", {1}, {{"begin", begin}, {"end", end}, {"strides", strides}}));
    return Apply(L, session, "reshape", {lua_gettop(L) + 1 - pushed}, {{"shape", rest}});
  }
  ASSIGN_OR_RETURN(const Tensor t, SelfTensor(L, session, "subscript"));
  if (type.rank() == 1)
    PushElement(L, t.view(), i);
  else
    PushObject<Tensor>(L, SubTensor(t, i));
  return 1;
}

void SetOperandMetamethods(lua_State* L) {
  constexpr const char* kOperators[][2] = {
      {"__add", "add"}, {"__sub", "sub"}, {"__mul", "mul"}, {"__div", "div"}, {"__pow", "pow"}};
  for (const auto& o : kOperators) {
    lua_pushstring(L, o[1]);
    lua_pushcclosure(L, Entry<Arithmetic>, 1);
    lua_setfield(L, -2, o[0]);
  }
  SetFunctions(
      L, {{"__unm", Entry<Negate>}, {"__lt", Entry<Compare>}, {"__le", Entry<Compare>}, {"__len", Entry<Length>}});
}

void OpenOperators(lua_State* L) {
  SetFunctions(L, {{"op", Entry<CallOp>}, {"bind_attrs", Entry<BindAttrs>}, {"ops", Entry<ListOps>}});
  lua_newtable(L);
  lua_newtable(L);
  lua_pushcfunction(L, Entry<FindFunction>);
  lua_setfield(L, -2, "__index");
  lua_setmetatable(L, -2);
  lua_setfield(L, -2, "functions");
  lua_newtable(L);
  SetFunctions(L, {{"astype", Entry<AsType>},
                   {"reshape", Entry<ReshapeMethod>},
                   {"transpose", Entry<TransposeMethod>},
                   {"argmax", Entry<ArgmaxMethod>},
                   {"totable", Entry<ToTable>},
                   {"item", Entry<Item>},
                   {"free", Entry<FreeTensor>},
                   {"ndim", Entry<NumDims>}});
  constexpr const char* kReductions[][2] = {
      {"sum", "reduce_sum"}, {"mean", "reduce_mean"}, {"max", "reduce_max"}, {"min", "reduce_min"}};
  for (const auto& r : kReductions) {
    lua_pushstring(L, r[1]);
    lua_pushcclosure(L, Entry<ReduceMethod>, 1);
    lua_setfield(L, -2, r[0]);
  }
  lua_pushvalue(L, -1);
  lua_setfield(L, LUA_REGISTRYINDEX, kMethods);
  lua_setfield(L, -2, "methods");
  lua_newtable(L);
  lua_pushvalue(L, -1);
  lua_setfield(L, LUA_REGISTRYINDEX, kShape);
  lua_setfield(L, -2, "shape_metatable");
}

}  // namespace mslua
