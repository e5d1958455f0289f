#include "lua/tensor_kind.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "core/base/number.h"
#include "core/base/rng.h"
#include "core/kernels/strided_copy.h"
#include "lua/tensor_lua.h"
#include "lua/tensor_methods.h"

namespace mslua {
namespace {

StatusOr<Tensor> Filled(Session& session, const TensorType& type, double value) {
  RETURN_IF_ERROR(CheckHolds(type.dtype, value));
  ASSIGN_OR_RETURN(Tensor t, NewTensor(session.allocator(), type));
  double element = 0;  // of the type's bytes the first
  StoreDouble(type.dtype, &element, 0, value);
  Fill(SizeOf(type.dtype), type.elements(), &element, t.data.get());
  return t;
}

// An optional dtype argument.
StatusOr<DType> OptDType(lua_State* L, int index, DType fallback) {
  if (lua_isnoneornil(L, index)) return fallback;
  return ReadDType(L, index, "dtype");
}

StatusOr<int> MakeTensor(lua_State* L, Session& session) {
  absl::optional<DType> dtype;
  if (!lua_isnoneornil(L, 2)) {
    ASSIGN_OR_RETURN(dtype, ReadDType(L, 2, "Tensor: dtype"));
  }
  ASSIGN_OR_RETURN(Tensor t, ReadTensor(session, L, 1, dtype, "Tensor"));
  if (!lua_isnoneornil(L, 3)) {
    ASSIGN_OR_RETURN(const Shape shape, ReadShape(L, 3, "Tensor: shape"));
    if (t.type.rank() == 0) {
      ASSIGN_OR_RETURN(t, Filled(session, {t.type.dtype, shape}, LoadAsDouble(t.type.dtype, t.data.get(), 0)));
    } else if (NumElements(shape) != t.type.elements()) {
      return absl::InvalidArgumentError(
          absl::StrCat("Tensor: shape ", ToString(shape), " does not hold the ", t.type.elements(), " elements given"));
    } else {
      t = WithShape(t, shape);
    }
  }
  PushObject<Tensor>(L, std::move(t));
  return 1;
}

StatusOr<int> PushFilled(lua_State* L, Session& session, int dtype_index, double value, DType fallback) {
  TensorType type;
  ASSIGN_OR_RETURN(type.shape, ReadShape(L, 1, "shape"));
  ASSIGN_OR_RETURN(type.dtype, OptDType(L, dtype_index, fallback));
  RETURN_IF_ERROR(CheckNumber("full", type.dtype, value));
  if (lua_isnoneornil(L, dtype_index)) RETURN_IF_ERROR(CheckUnrounded(type.dtype, value));
  ASSIGN_OR_RETURN(Tensor t, Filled(session, type, value));
  PushObject<Tensor>(L, std::move(t));
  return 1;
}
StatusOr<int> MakeZeros(lua_State* L, Session& s) { return PushFilled(L, s, 2, 0, DType::kF32); }
StatusOr<int> MakeOnes(lua_State* L, Session& s) { return PushFilled(L, s, 2, 1, DType::kF32); }
StatusOr<int> MakeFull(lua_State* L, Session& s) {
  if (lua_type(L, 2) == LUA_TBOOLEAN) return PushFilled(L, s, 3, lua_toboolean(L, 2), DType::kBool);
  ASSIGN_OR_RETURN(const double value, ReadNumber(L, 2, "full: value"));
  return PushFilled(L, s, 3, value, DType::kF32);
}

StatusOr<int> MakeEye(lua_State* L, Session& session) {
  ASSIGN_OR_RETURN(const int64_t n, ReadInt(L, 1, "eye: n"));
  int64_t m = n;
  if (!lua_isnoneornil(L, 2)) {
    ASSIGN_OR_RETURN(m, ReadInt(L, 2, "eye: m"));
  }
  if (n < 0 || m < 0 || n > 1 << 20 || m > 1 << 20)
    return absl::InvalidArgumentError(absl::StrCat("eye: expected sizes up to 1048576, got ", n, " and ", m));
  ASSIGN_OR_RETURN(const DType dtype, OptDType(L, 3, DType::kF32));
  ASSIGN_OR_RETURN(Tensor t, Filled(session, {dtype, {n, m}}, 0));
  for (int64_t i = 0; i < std::min(n, m); ++i) StoreDouble(dtype, t.data.get(), i * m + i, 1);
  PushObject<Tensor>(L, std::move(t));
  return 1;
}

StatusOr<int> MakeArange(lua_State* L, Session& session) {
  int count = lua_gettop(L);
  absl::optional<DType> dtype;
  while (count > 0 && lua_isnil(L, count)) --count;
  if (count > 0 && lua_type(L, count) == LUA_TSTRING) {
    ASSIGN_OR_RETURN(dtype, ReadDType(L, count, "arange: dtype"));
    --count;
  }
  if (count < 1 || count > 3)
    return absl::InvalidArgumentError("arange: expected (stop), (start, stop) or (start, stop, step), then a dtype");
  double v[3];
  for (int i = 0; i < count; ++i) {
    ASSIGN_OR_RETURN(v[i], ReadNumber(L, i + 1, "arange"));
  }
  const double start = count == 1 ? 0 : v[0], stop = count == 1 ? v[0] : v[1], step = count == 3 ? v[2] : 1;
  if (!(step != 0) || !std::isfinite(start) || !std::isfinite(stop) || !std::isfinite(step)) {
    return absl::InvalidArgumentError("arange: expected finite numbers and a step other than 0");
  }
  const double n = std::max(0.0, std::ceil((stop - start) / step));
  if (n > 1e9) return absl::InvalidArgumentError(absl::StrCat("arange: ", n, " elements are too many"));
  const bool whole = start == std::floor(start) && step == std::floor(step);
  const TensorType type{dtype.value_or(whole ? DType::kI32 : DType::kF32), {static_cast<int64_t>(n)}};
  if (n > 0) {
    for (const double number : {start, start + (n - 1) * step}) {
      const Status held = CheckHolds(type.dtype, number);
      if (!held.ok()) return absl::InvalidArgumentError(absl::StrCat("arange: ", held.message()));
    }
  }
  ASSIGN_OR_RETURN(Tensor t, NewTensor(session.allocator(), type));
  DispatchDType(type.dtype, [&](auto zero) {
    using T = decltype(zero);
    for (int64_t i = 0; i < type.shape[0]; ++i) {
      const double number = start + static_cast<double>(i) * step;
      static_cast<T*>(t.data.get())[i] = static_cast<T>(static_cast<ComputeType<T>>(number));
    }
  });
  PushObject<Tensor>(L, std::move(t));
  return 1;
}

StatusOr<int> MakeRandom(lua_State* L, Session& session, bool normal) {
  TensorType type;
  ASSIGN_OR_RETURN(type.shape, ReadShape(L, 1, normal ? "randn: shape" : "rand: shape"));
  ASSIGN_OR_RETURN(type.dtype, OptDType(L, 2, DType::kF32));
  if (!IsFloat(type.dtype))
    return absl::InvalidArgumentError(absl::StrCat("rand: expected a float dtype, got ", LongName(type.dtype)));
  std::string stream;
  if (!lua_isnoneornil(L, 3)) {
    ASSIGN_OR_RETURN(stream, ReadString(L, 3, "rand: name"));
  } else {
    stream = absl::StrCat("tensor:", session.random_tensors++);
  }
  uint64_t seed = session.state().seed;
  if (!lua_isnoneornil(L, 4)) {
    ASSIGN_OR_RETURN(const int64_t given, ReadInt(L, 4, "rand: seed"));
    if (given < 0) return absl::InvalidArgumentError(absl::StrCat("rand: expected a seed of at least 0, got ", given));
    seed = static_cast<uint64_t>(given);
  }
  ASSIGN_OR_RETURN(Tensor t, NewTensor(session.allocator(), {DType::kF32, type.shape}));
  const auto n = static_cast<uint64_t>(type.elements());
  (normal ? FillNormal : FillUniform)(seed, StreamOf(stream), 0, n, static_cast<float*>(t.data.get()));
  // In 16 bits numbers beside 1 round to it: the largest one below it is left.
  if (!normal && (type.dtype == DType::kBF16 || type.dtype == DType::kF16)) {
    const float most = type.dtype == DType::kBF16 ? 1 - 0x1p-8f : 1 - 0x1p-11f;
    auto* numbers = static_cast<float*>(t.data.get());
    for (uint64_t i = 0; i < n; ++i) numbers[i] = std::min(numbers[i], most);
  }
  ASSIGN_OR_RETURN(t, CastTensor(session.allocator(), t, type.dtype));
  PushObject<Tensor>(L, std::move(t));
  return 1;
}
StatusOr<int> MakeRand(lua_State* L, Session& s) { return MakeRandom(L, s, false); }
StatusOr<int> MakeRandn(lua_State* L, Session& s) { return MakeRandom(L, s, true); }

StatusOr<int> TensorIndex(lua_State* L, Session& session) {
  const auto* t = ToObject<Tensor>(L, 1);
  if (t == nullptr) return absl::InvalidArgumentError("expected a Tensor");
  if (t->data == nullptr) return absl::FailedPreconditionError("the Tensor was freed");
  if (lua_type(L, 2) == LUA_TSTRING) return GetTensorField(L, t->type);
  return IndexOperand(L, session);
}

StatusOr<int> TensorToText(lua_State* L, Session&) {
  const auto* t = ToObject<Tensor>(L, 1);
  if (t == nullptr) return absl::InvalidArgumentError("expected a Tensor");
  PushString(L, t->data == nullptr ? "freed Tensor" : TensorText(t->view()));
  return 1;
}

StatusOr<int> NoAssignment(lua_State*, Session&) {
  return absl::InvalidArgumentError(
      "a Tensor cannot be changed: ops.where(mask, value, x) and ops.update_slice(x, piece, start) give another one");
}

}  // namespace

void OpenTensors(lua_State* L) {
  NewKind<Tensor>(L);
  SetOperandMetamethods(L);
  lua_pushcfunction(L, Entry<NoAssignment>);
  lua_setfield(L, -2, "__newindex");
  lua_pushcfunction(L, Entry<TensorIndex>);
  lua_setfield(L, -2, "__index");
  lua_pushcfunction(L, Entry<TensorToText>);
  lua_setfield(L, -2, "__tostring");
  lua_pop(L, 1);
  SetFunctions(L, {{"tensor", Entry<MakeTensor>},
                   {"zeros", Entry<MakeZeros, 2>},
                   {"ones", Entry<MakeOnes, 2>},
                   {"full", Entry<MakeFull, 3>},
                   {"eye", Entry<MakeEye, 3>},
                   {"arange", Entry<MakeArange, 4>},
                   {"rand", Entry<MakeRand, 4>},
                   {"randn", Entry<MakeRandn, 4>}});
}

}  // namespace mslua
