#include "lua/tensor_lua.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "core/base/number.h"
#include "lua/lists.h"
#include "lua/object.h"
#include "lua/traced_value.h"

namespace mslua {
namespace {

// The shape of a nested list, from its first elements, and whether its leaves are booleans.
Status ListShape(lua_State* L, int index, absl::string_view what, Shape* shape, bool* boolean) {
  const StackGuard guard(L);
  lua_pushvalue(L, index);
  while (lua_type(L, -1) == LUA_TTABLE) {
    if (shape->size() == kMaxRank)
      return absl::InvalidArgumentError(absl::StrCat(what, ": lists nested deeper than ", kMaxRank));
    shape->push_back(static_cast<int64_t>(lua_objlen(L, -1)));
    if (!lua_checkstack(L, 4)) return absl::ResourceExhaustedError("Lua's stack is full");
    lua_rawgeti(L, -1, 1);
    if (shape->back() == 0) return absl::OkStatus();
  }
  if (!shape->empty() && lua_isnil(L, -1)) return NilInList(what, 1);
  if (lua_type(L, -1) != LUA_TNUMBER && lua_type(L, -1) != LUA_TBOOLEAN) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, ": expected a number, a boolean, a nested list of them or a Tensor, got ",
                     shape->empty() ? "" : "a list of ", Describe(L, -1),
                     !shape->empty() && ToObject<Tensor>(L, -1) != nullptr ? ": ms.ops.stack joins tensors" : ""));
  }
  *boolean = lua_type(L, -1) == LUA_TBOOLEAN;
  return absl::OkStatus();
}

constexpr double kWholeInF32 = 1 << 24;  // float32 holds all whole numbers up to it

// `typed`: the user has said which type they have.
Status ListValues(lua_State* L, int index, absl::string_view what, size_t depth, bool typed, const Tensor& out,
                  int64_t* next) {
  const int type = lua_type(L, index);
  if (depth == out.type.shape.size()) {
    if (type == LUA_TNUMBER) {
      Status held = CheckHolds(out.type.dtype, lua_tonumber(L, index));
      if (held.ok() && !typed) held = CheckUnrounded(out.type.dtype, lua_tonumber(L, index));
      if (!held.ok()) return absl::InvalidArgumentError(absl::StrCat(what, ": ", held.message()));
      StoreDouble(out.type.dtype, out.data.get(), (*next)++, lua_tonumber(L, index));
    } else if (type == LUA_TBOOLEAN)
      StoreDouble(out.type.dtype, out.data.get(), (*next)++, lua_toboolean(L, index));
    else
      return absl::InvalidArgumentError(
          absl::StrCat(what, ": expected a number at depth ", depth + 1, ", got ", Describe(L, index)));
    return absl::OkStatus();
  }
  const int64_t want = out.type.shape[depth];
  const int64_t got = type == LUA_TTABLE ? static_cast<int64_t>(lua_objlen(L, index)) : -1;
  if (got != want) {
    return absl::InvalidArgumentError(absl::StrCat(what, ": lists are ragged: expected ", want, " elements at depth ",
                                                   depth + 1, ", got ",
                                                   got < 0 ? Describe(L, index) : absl::StrCat(got)));
  }
  index = AbsoluteIndex(L, index);
  RETURN_IF_ERROR(CheckList(L, index, what));
  auto* const floats = depth + 1 == out.type.shape.size() && out.type.dtype == DType::kF32
                           ? static_cast<float*>(out.data.get())
                           : nullptr;
  for (int64_t i = 1; i <= want; ++i) {
    lua_rawgeti(L, index, static_cast<int>(i));
    // Most lists: the rest is for what float32 rounds, and for other types.
    if (floats != nullptr && lua_type(L, -1) == LUA_TNUMBER) {
      const double v = lua_tonumber(L, -1);
      if (typed || v != std::trunc(v) || std::fabs(v) <= kWholeInF32) {
        floats[(*next)++] = static_cast<float>(v);
        lua_pop(L, 1);
        continue;
      }
    }
    if (lua_isnil(L, -1)) return NilInList(what, i);
    const Status s = ListValues(L, -1, what, depth + 1, typed, out, next);
    lua_pop(L, 1);
    RETURN_IF_ERROR(s);
  }
  return absl::OkStatus();
}

}  // namespace

StatusOr<Tensor> ReadTensor(Session& session, lua_State* L, int index, absl::optional<DType> dtype,
                            absl::string_view what) {
  index = AbsoluteIndex(L, index);
  if (const auto* t = ToObject<Tensor>(L, index)) {
    if (t->data == nullptr) return absl::FailedPreconditionError(absl::StrCat(what, ": the Tensor was freed"));
    return CastTensor(session.allocator(), *t, dtype.value_or(t->type.dtype));
  }
  if (const auto* p = ToObject<std::shared_ptr<ParameterData>>(L, index)) {
    RETURN_IF_ERROR(CheckWhole(session.state(), **p));
    ASSIGN_OR_RETURN(const TensorView value, ValueOf(session.state(), **p));
    ASSIGN_OR_RETURN(Tensor copy, NewTensor(session.allocator(), value.type));
    std::memcpy(copy.data.get(), value.data, static_cast<size_t>(value.type.bytes()));
    return CastTensor(session.allocator(), copy, dtype.value_or(value.type.dtype));
  }
  if (ToObject<TracedValue>(L, index) != nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, ": a traced value has no elements yet: compute with it inside construct"));
  }
  Shape shape;
  bool boolean = false;
  RETURN_IF_ERROR(ListShape(L, index, what, &shape, &boolean));
  ASSIGN_OR_RETURN(Tensor t,
                   NewTensor(session.allocator(), {dtype.value_or(boolean ? DType::kBool : DType::kF32), shape}));
  int64_t next = 0;
  RETURN_IF_ERROR(ListValues(L, index, what, 0, dtype.has_value(), t, &next));
  return t;
}

Status PushElement(lua_State* L, const TensorView& t, int64_t i) {
  if (t.type.dtype == DType::kBool) {
    lua_pushboolean(L, t.as<uint8_t>()[i]);
    return absl::OkStatus();
  }
  const double v = LoadAsDouble(t.type.dtype, t.data, i);
  constexpr double kEnd = 0x1p63;  // of int64_t
  if (t.type.dtype == DType::kI64 && (v >= kEnd || static_cast<int64_t>(v) != t.as<int64_t>()[i])) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the int64 ", t.as<int64_t>()[i], " would be rounded as a Lua number: compute with the tensor, or print it"));
  }
  lua_pushnumber(L, v);
  return absl::OkStatus();
}

}  // namespace mslua
