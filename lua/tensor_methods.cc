#include "lua/tensor_methods.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/text.h"
#include "core/step/parameter.h"
#include "lua/lists.h"
#include "lua/object.h"
#include "lua/op_call.h"
#include "lua/tensor_lua.h"
#include "lua/trace_lua.h"

namespace mslua {
namespace {

constexpr char kMethods[] = "mslua.methods";
constexpr char kShape[] = "mslua.shape";  // the metatable of shapes, which mslua/shape.lua fills

// -------------------------------------------------------------------------------------------- metamethods

StatusOr<int> Arithmetic(lua_State* L, Session& session) {
  const char* name = lua_tostring(L, lua_upvalueindex(1));
  if (std::strcmp(name, "pow") == 0 && lua_type(L, 2) == LUA_TNUMBER && lua_tonumber(L, 2) == 2)
    return Apply(L, session, "mul", {1, 1}, {});
  return Apply(L, session, name, {1, 2}, {});
}
StatusOr<int> Negate(lua_State* L, Session& session) { return Apply(L, session, "neg", {1}, {}); }

// The only element of an integer tensor.
int64_t LoadAsInt(const TensorView& one) {
  switch (one.type.dtype) {
    case DType::kI64:
      return *one.as<int64_t>();
    case DType::kI32:
      return *one.as<int32_t>();
    default:
      return static_cast<int64_t>(LoadAsDouble(one.type.dtype, one.data, 0));
  }
}

// Whether a < b, or a <= b with `or_equal`, of single elements; NaN is neither. Integers are compared as integers.
bool Precedes(const TensorView& a, const TensorView& b, bool or_equal) {
  if (IsInteger(a.type.dtype) && IsInteger(b.type.dtype)) {
    const int64_t x = LoadAsInt(a), y = LoadAsInt(b);
    return or_equal ? x <= y : x < y;
  }
  const double x = LoadAsDouble(a.type.dtype, a.data, 0), y = LoadAsDouble(b.type.dtype, b.data, 0);
  return or_equal ? x <= y : x < y;
}

// Lua makes a boolean of what < gives, so that only single elements can be compared.
template <bool or_equal>
StatusOr<int> Compare(lua_State* L, Session& session) {
  constexpr const char* kSign = or_equal ? "<=" : "<";
  constexpr const char* kOperator = or_equal ? "ops.less_equal" : "ops.less";
  if (session.trace != nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(kSign, " on traced values: Lua's conditions run while the graph is traced; use ", kOperator,
                     "(x, y), and ops.select(condition, a, b) for the choice"));
  }
  Tensor t[2];
  for (int i = 0; i < 2; ++i) {
    ASSIGN_OR_RETURN(t[i], ReadTensor(session, L, i + 1, absl::nullopt, kSign));
    if (t[i].type.elements() == 1) continue;
    return absl::InvalidArgumentError(absl::StrCat(kSign, " gives one boolean in Lua, and ", ToString(t[i].type),
                                                   " has ", t[i].type.elements(), " elements: use ", kOperator,
                                                   "(x, y) for the elements, or compare two of them"));
  }
  lua_pushboolean(L, Precedes(t[0].view(), t[1].view(), or_equal));
  return 1;
}

// Lua makes a boolean of what == gives, so it cannot compare elements. Parameters are told apart by it.
StatusOr<int> Equal(lua_State* L, Session&) {
  const auto* a = ToObject<std::shared_ptr<ParameterData>>(L, 1);
  const auto* b = ToObject<std::shared_ptr<ParameterData>>(L, 2);
  if (a == nullptr || b == nullptr) {
    return absl::InvalidArgumentError(
        "== and ~= on tensors give no tensor in Lua: use ops.equal(x, y) or ops.not_equal(x, y) for the elements, "
        "rawequal(x, y) for whether they are one object");
  }
  lua_pushboolean(L, *a == *b);
  return 1;
}

StatusOr<int> Length(lua_State* L, Session& session) {
  ASSIGN_OR_RETURN(const auto type, OperandType(L, session, 1));
  if (!type.has_value()) return absl::InvalidArgumentError("expected a tensor");
  if (type->rank() == 0) return absl::InvalidArgumentError("# of a scalar: it has no dimension");
  lua_pushnumber(L, static_cast<double>(type->shape[0]));
  return 1;
}

// ------------------------------------------------------------------------------------------------- methods

StatusOr<TensorType> SelfType(lua_State* L, Session& session, absl::string_view method) {
  ASSIGN_OR_RETURN(const auto type, OperandType(L, session, 1));
  if (!type.has_value())
    return absl::InvalidArgumentError(
        absl::StrCat(method, ": expected a tensor before the colon, got ", Describe(L, 1)));
  return *type;
}

// The tensor at 1 as an eager one: shared, or a copy of a parameter.
StatusOr<Tensor> SelfTensor(lua_State* L, Session& session, absl::string_view method) {
  if (ToObject<TracedValue>(L, 1) != nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(
        method,
        " of a traced value: it has no elements while the graph is traced; use ops.select(condition, a, b) for a "
        "choice, or return it from construct"));
  }
  return ReadTensor(session, L, 1, absl::nullopt, method);
}

StatusOr<int> AsType(lua_State* L, Session& session) {
  RETURN_IF_ERROR(SelfType(L, session, "astype").status());
  ASSIGN_OR_RETURN(const DType dtype, ReadDType(L, 2, "astype"));
  if (session.trace != nullptr) return Apply(L, session, "cast", {1}, {{"dtype", dtype}});
  ASSIGN_OR_RETURN(const Tensor t, SelfTensor(L, session, "astype"));
  ASSIGN_OR_RETURN(Tensor out, CastTensor(session.allocator(), t, dtype));
  PushObject<Tensor>(L, std::move(out));
  return 1;
}

// The operator of all arguments, the tensor first: it reads names as well.
StatusOr<int> CallOperator(lua_State* L, Session& session, absl::string_view name) {
  ASSIGN_OR_RETURN(const OpDef* op, RequireOp(name));
  return CallOperator(L, session, *op, 1, lua_gettop(L), {});
}

// Integers from argument 2 on, or a list there.
StatusOr<std::vector<int64_t>> RestInts(lua_State* L, absl::string_view what) {
  if (lua_type(L, 2) == LUA_TTABLE) {
    RETURN_IF_ERROR(CheckArgumentCount(L, 2));
    return ReadInts(L, 2, what);
  }
  std::vector<int64_t> out;
  for (int i = 2; i <= lua_gettop(L); ++i) {
    ASSIGN_OR_RETURN(const int64_t v, ReadInt(L, i, what));
    out.push_back(v);
  }
  return out;
}

// The tensor at 1 in another shape of as many elements.
StatusOr<int> PushReshaped(lua_State* L, Session& session, const std::vector<int64_t>& shape) {
  if (session.trace != nullptr) return Apply(L, session, "reshape", {1}, {{"shape", shape}});
  ASSIGN_OR_RETURN(const Tensor t, SelfTensor(L, session, "reshape"));
  PushObject<Tensor>(L, WithShape(t, Shape(shape.begin(), shape.end())));
  return 1;
}

StatusOr<int> ReshapeMethod(lua_State* L, Session& session) {
  ASSIGN_OR_RETURN(const TensorType type, SelfType(L, session, "reshape"));
  if (IsNames(L, 2)) {
    RETURN_IF_ERROR(CheckFields(L, 2, "reshape", {"shape"}));
    lua_getfield(L, 2, "shape");
    lua_replace(L, 2);
  }
  ASSIGN_OR_RETURN(std::vector<int64_t> shape, RestInts(L, "reshape"));
  int64_t known = 1, open = -1;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == -1 && open < 0)
      open = static_cast<int64_t>(i);
    else if (shape[i] < 0)
      return absl::InvalidArgumentError(
          absl::StrCat("reshape: ", ToString(absl::MakeConstSpan(shape)), " is not a shape (one size may be -1)"));
    else if (__builtin_mul_overflow(known, shape[i], &known))
      return absl::InvalidArgumentError(
          absl::StrCat("reshape: ", ToString(absl::MakeConstSpan(shape)), " has too many elements"));
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
  return PushReshaped(L, session, shape);
}

StatusOr<int> TransposeMethod(lua_State* L, Session& session) {
  ASSIGN_OR_RETURN(const TensorType type, SelfType(L, session, "transpose"));
  if (IsNames(L, 2)) return CallOperator(L, session, "transpose");
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
  if (IsNames(L, lua_gettop(L))) return CallOperator(L, session, op);
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
  const int last = lua_gettop(L);
  bool has_axis = !lua_isnoneornil(L, 2) && !IsNames(L, 2);
  if (IsNames(L, last)) {
    const StackGuard guard(L);
    lua_getfield(L, last, "axis");
    has_axis = has_axis || !lua_isnil(L, -1);
  }
  if (!has_axis && type.rank() != 1) {
    // Over all elements, as NumPy does.
    RETURN_IF_ERROR(PushReshaped(L, session, {type.elements()}).status());
    lua_replace(L, 1);
    lua_settop(L, last);
  }
  return CallOperator(L, session, "argmax");
}

Status PushNested(lua_State* L, const Tensor& t) {
  if (t.type.rank() == 0) return PushElement(L, t.view(), 0);
  if (!lua_checkstack(L, 4)) return absl::ResourceExhaustedError("Lua's stack is full");
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
  RETURN_IF_ERROR(PushElement(L, t.view(), 0));
  return 1;
}

StatusOr<int> FreeTensor(lua_State* L, Session&) {
  if (auto* t = ToObject<Tensor>(L, 1)) t->data.reset();
  return 0;
}

// What methods of other libraries' tensors are called here.
const char* HereCalled(absl::string_view name) {
  constexpr const char* kNames[][2] = {{"asnumpy", "x:totable()"},
                                       {"numpy", "x:totable()"},
                                       {"tolist", "x:totable()"},
                                       {"view", "x:reshape(...)"},
                                       {"flatten", "x:reshape(-1)"},
                                       {"permute", "x:transpose(...)"},
                                       {"t", "x:transpose(2, 1)"},
                                       {"T", "x:transpose(2, 1)"},
                                       {"to", "x:astype(dtype)"},
                                       {"float", "x:astype(ms.float32)"},
                                       {"std", "ms.ops.std(x, { axis = ... })"},
                                       {"var", "ms.ops.var(x, { axis = ... })"},
                                       {"backward", "ms.grad or ms.value_and_grad of a function"},
                                       {"detach", "ms.ops.stop_gradient(x)"},
                                       {"clone", "x itself, which nothing changes; p.value of a parameter p"},
                                       {"copy", "x itself, which nothing changes; p.value of a parameter p"},
                                       {"data", "p.value of a parameter p"},
                                       {"set_data", "p.value = x, of a parameter p"},
                                       {"copy_", "p.value = x, of a parameter p"},
                                       {"grad", "gradients are results of ms.value_and_grad"},
                                       {"dim", "x.ndim"},
                                       {"numel", "x.size"},
                                       {"int", "x:astype(ms.int32)"},
                                       {"long", "x:astype(ms.int64)"},
                                       {"double", "x:astype(ms.float64)"},
                                       {"half", "x:astype(ms.float16)"},
                                       {"cpu", "x itself: a tensor is in the memory of the process"},
                                       {"cuda", "--device of the command says where a network is computed"}};
  for (const auto& [theirs, ours] : kNames) {
    if (name == theirs) return ours;
  }
  return nullptr;
}

// What the library says of a method that is an operator or a function, by mslua.namespace; empty: nothing.
std::string FunctionCalled(lua_State* L, const std::string& name) {
  const StackGuard guard(L);
  lua_getfield(L, LUA_REGISTRYINDEX, "_LOADED");
  lua_getfield(L, -1, "mslua.namespace");
  if (lua_type(L, -1) != LUA_TTABLE) return "";
  lua_getfield(L, -1, "function_for");
  PushString(L, name);
  if (lua_pcall(L, 1, 1, 0) != 0 || lua_type(L, -1) != LUA_TSTRING) return "";
  return lua_tostring(L, -1);
}

// `methods` lies at that index.
Status NoSuchField(lua_State* L, int methods, absl::string_view field) {
  std::vector<std::string> known = {"shape", "dtype", "size", "ndim"};
  for (lua_pushnil(L); lua_next(L, methods) != 0; lua_pop(L, 1)) {
    if (lua_type(L, -2) == LUA_TSTRING) known.emplace_back(lua_tostring(L, -2));
  }
  std::sort(known.begin(), known.end());
  const std::string name(field);
  const char* named = HereCalled(name);
  const std::string ours = named != nullptr ? named : FunctionCalled(L, name);
  return absl::InvalidArgumentError(absl::StrCat("a tensor has no field or method '", name, "'",
                                                 !ours.empty() ? absl::StrCat(": ", ours) : DidYouMean(name, known)));
}

}  // namespace

namespace {

// What a subscript takes of one dimension, as strided_slice says it: from 0, `end` excluded.
struct Taken {
  int64_t begin = 0, end = 0, stride = 1;
  bool dropped = false;  // one element, whose dimension the result does not have
};

std::string SliceProblem(const TensorType& type, size_t d, absl::string_view got, absl::string_view expected) {
  return absl::StrCat("subscript ", d + 1, " of ", ToString(type), ": expected ", expected, ", got ", got);
}

// Place `at`, from 1 or from the end with -1, as one from 0.
StatusOr<int64_t> PlaceIn(const TensorType& type, size_t d, int64_t at) {
  const int64_t n = type.shape[d];
  if (at == 0 || at > n || at < -n) {
    return absl::OutOfRangeError(
        SliceProblem(type, d, absl::StrCat(at), absl::StrCat("1 to ", n, ", or -1 to -", n, " from the end")));
  }
  return at > 0 ? at - 1 : n + at;
}

// The subscript at the top of the stack: an integer, {}, {first, last} or {first, last, step}.
StatusOr<Taken> ReadTaken(lua_State* L, const TensorType& type, size_t d) {
  constexpr char kForms[] = "an integer, {} for all, {first, last} or {first, last, step}";
  Taken taken;
  taken.end = type.shape[d];
  const std::string what = absl::StrCat("subscript ", d + 1);
  if (lua_type(L, -1) == LUA_TNUMBER) {
    ASSIGN_OR_RETURN(const int64_t at, ReadInt(L, -1, what));
    ASSIGN_OR_RETURN(taken.begin, PlaceIn(type, d, at));
    taken.end = taken.begin + 1;
    taken.dropped = true;
    return taken;
  }
  if (lua_type(L, -1) != LUA_TTABLE) return absl::InvalidArgumentError(SliceProblem(type, d, Describe(L, -1), kForms));
  ASSIGN_OR_RETURN(const std::vector<int64_t> range, ReadInts(L, -1, what));
  if (range.empty()) return taken;
  const std::string text = absl::StrCat("{", absl::StrJoin(range, ", "), "}");
  if (range.size() == 1 || range.size() > 3) return absl::InvalidArgumentError(SliceProblem(type, d, text, kForms));
  ASSIGN_OR_RETURN(taken.begin, PlaceIn(type, d, range[0]));
  ASSIGN_OR_RETURN(const int64_t last, PlaceIn(type, d, range[1]));
  if (range.size() == 3) taken.stride = range[2];
  if (taken.stride < 1) {
    return absl::InvalidArgumentError(absl::StrCat(SliceProblem(type, d, text, "a step of at least 1"),
                                                   " (ops.reverse(x, axis) turns an axis around)"));
  }
  if (last < taken.begin) return absl::InvalidArgumentError(SliceProblem(type, d, text, "first not behind last"));
  taken.end = last + 1;
  return taken;
}

// x[{ {}, {2, 5}, -1 }]: the list at 2 has a subscript for each of the first dimensions.
StatusOr<int> IndexBySlices(lua_State* L, Session& session, const TensorType& type) {
  RETURN_IF_ERROR(CheckList(L, 2, "subscripts"));
  const size_t n = lua_objlen(L, 2);
  if (n == 0 || n > type.shape.size()) {
    return absl::InvalidArgumentError(absl::StrCat("subscript of ", ToString(type), ": expected a list of ",
                                                   type.rank() > 1 ? "1 to " : "", Counted(type.rank(), "subscript"),
                                                   ", got ", n));
  }
  std::vector<int64_t> begin, end, strides, rest;
  bool numbers = true, whole = true;
  for (size_t d = 0; d < type.shape.size(); ++d) {
    Taken taken;
    taken.end = type.shape[d];
    if (d < n) {
      lua_rawgeti(L, 2, static_cast<int>(d) + 1);
      ASSIGN_OR_RETURN(taken, ReadTaken(L, type, d));
      lua_pop(L, 1);
    }
    numbers = numbers && (d >= n || taken.dropped);
    whole = whole && taken.begin == 0 && taken.end == type.shape[d] && taken.stride == 1 && !taken.dropped;
    begin.push_back(taken.begin);
    end.push_back(taken.end);
    strides.push_back(taken.stride);
    if (!taken.dropped) rest.push_back((taken.end - taken.begin - 1) / taken.stride + 1);
  }
  if (session.trace == nullptr && (numbers || whole)) {  // a part of the memory as it is
    ASSIGN_OR_RETURN(Tensor t, SelfTensor(L, session, "subscript"));
    for (size_t d = 0; d < n && numbers; ++d) t = SubTensor(t, begin[d]);
    if (numbers && t.type.rank() == 0) {
      RETURN_IF_ERROR(PushElement(L, t.view(), 0));
    } else {
      PushObject<Tensor>(L, std::move(t));
    }
    return 1;
  }
  ASSIGN_OR_RETURN(const int pushed,
                   Apply(L, session, "strided_slice", {1}, {{"begin", begin}, {"end", end}, {"strides", strides}}));
  if (rest.size() == type.shape.size()) return pushed;
  return Apply(L, session, "reshape", {lua_gettop(L) + 1 - pushed}, {{"shape", rest}});
}

}  // namespace

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
  } else if (field == "ndim") {
    lua_pushnumber(L, static_cast<double>(type.rank()));
  } else {
    lua_getfield(L, LUA_REGISTRYINDEX, kMethods);
    lua_pushvalue(L, 2);
    lua_rawget(L, -2);
    if (lua_isnil(L, -1)) return NoSuchField(L, lua_gettop(L) - 1, field);
  }
  return 1;
}

StatusOr<int> IndexOperand(lua_State* L, Session& session) {
  ASSIGN_OR_RETURN(const TensorType type, SelfType(L, session, "subscript"));
  if (lua_type(L, 2) == LUA_TTABLE) return IndexBySlices(L, session, type);
  if (lua_type(L, 2) == LUA_TUSERDATA) {
    return absl::InvalidArgumentError(
        absl::StrCat("subscript of ", ToString(type), ": expected an integer or a list of slices, got ", Describe(L, 2),
                     ": ops.gather(x, ids, axis) takes ids, which count from 0, and ops.where(mask, x, 0) a mask"));
  }
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
  if (type.rank() == 1) {
    RETURN_IF_ERROR(PushElement(L, t.view(), i));
  } else {
    PushObject<Tensor>(L, SubTensor(t, i));
  }
  return 1;
}

namespace {

StatusOr<int> NoRemainder(lua_State*, Session&) {
  return absl::InvalidArgumentError("a % b: tensors have no %: ms.ops.floor_mod(a, b) is the remainder that Lua has");
}

// "loss " .. x: both as tostring gives them.
StatusOr<int> Concatenate(lua_State* L, Session& session) {
  for (int i = 1; i <= 2; ++i) {
    lua_getglobal(L, "tostring");
    lua_pushvalue(L, i);
    RETURN_IF_ERROR(session.Call(1, 1));
  }
  lua_concat(L, 2);
  return 1;
}

// Sets the field of the metatable on top to `f`, the same object each time.
void SetShared(lua_State* L, const char* field, lua_CFunction f) {
  const std::string key = absl::StrCat("mslua.metamethod.", field);
  lua_getfield(L, LUA_REGISTRYINDEX, key.c_str());
  if (lua_isnil(L, -1)) {
    lua_pop(L, 1);
    lua_pushcfunction(L, f);
    lua_pushvalue(L, -1);
    lua_setfield(L, LUA_REGISTRYINDEX, key.c_str());
  }
  lua_setfield(L, -2, field);
}

}  // namespace

void SetOperandMetamethods(lua_State* L) {
  constexpr const char* kOperators[][2] = {
      {"__add", "add"}, {"__sub", "sub"}, {"__mul", "mul"}, {"__div", "div"}, {"__pow", "pow"}};
  for (const auto& o : kOperators) {
    lua_pushstring(L, o[1]);
    lua_pushcclosure(L, Entry<Arithmetic>, 1);
    lua_setfield(L, -2, o[0]);
  }
  SetFunctions(L, {{"__unm", Entry<Negate>},
                   {"__len", Entry<Length>},
                   {"__mod", Entry<NoRemainder>},
                   {"__concat", Entry<Concatenate>}});
  // Lua asks two kinds about each other only where they have one function for it.
  SetShared(L, "__eq", Entry<Equal>);
  SetShared(L, "__lt", Entry<Compare<false>>);
  SetShared(L, "__le", Entry<Compare<true>>);
}

void OpenTensorMethods(lua_State* L) {
  lua_newtable(L);
  SetFunctions(L, {{"astype", Entry<AsType, 2>},
                   {"reshape", Entry<ReshapeMethod>},
                   {"transpose", Entry<TransposeMethod>},
                   {"argmax", Entry<ArgmaxMethod>},
                   {"totable", Entry<ToTable, 1>},
                   {"item", Entry<Item, 1>},
                   {"free", Entry<FreeTensor, 1>}});
  constexpr const char* kReductions[][2] = {
      {"sum", "reduce_sum"}, {"mean", "reduce_mean"}, {"max", "reduce_max"}, {"min", "reduce_min"}};
  for (const auto& r : kReductions) {
    lua_pushstring(L, r[1]);
    lua_pushcclosure(L, Entry<ReduceMethod, 3>, 1);
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
