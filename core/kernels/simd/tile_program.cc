#include "core/kernels/simd/tile_program.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "core/base/parallel_for.h"
#include "core/base/round_up.h"
#include "core/kernels/simd/conversions.h"
#include "hwy/cache_control.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/kernels/simd/tile_program.cc"
// clang-format off
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "core/kernels/simd/math-inl.h"
#include "core/kernels/simd/simd-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace mslua {
#ifndef MSLUA_TILE_OPS
#define MSLUA_TILE_OPS
namespace {
// Instructions that no formula names: a * b + c, a * b - c, c - a * b, rounded once.
constexpr ScalarOp kMulAdd = static_cast<ScalarOp>(253);
constexpr ScalarOp kMulSub = static_cast<ScalarOp>(254);
constexpr ScalarOp kNegMulAdd = static_cast<ScalarOp>(255);
}  // namespace
#define MSLUA_OPERANDS_1 a
#define MSLUA_OPERANDS_2 a, b
#define MSLUA_OPERANDS_3 a, b, c
#define MSLUA_VECTORS_1 V x
#define MSLUA_VECTORS_2 V x, V y
#define MSLUA_VECTORS_3 V x, V y, V z
#endif
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D = F32;
using V = V32;

// One operand of a tile instruction: a tile, or one number for all elements, which then fills a vector.
struct Operand {
  const float* data;
  bool scalar;
};

// f(i) for the vectors that cover [0, n), two at a time: tiles are padded.
template <class F>
HWY_INLINE void ForEachPair(int64_t n, F f) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(D()));
  for (int64_t i = 0; i < n; i += 2 * lanes) {
    f(i);
    f(i + lanes);
  }
}

HWY_INLINE void Fill(int64_t n, V value, float* out) {
  ForEachPair(n, [&](int64_t i) { Store(value, out + i); });
}

// out = f(tag, vector of a), f(tag, of a, of b), f(tag, of a, of b, of c).
template <class F>
HWY_INLINE void Map(int64_t n, Operand a, float* out, F f) {
  const D d;
  if (a.scalar) return Fill(n, f(d, hn::Set(d, *a.data)), out);
  ForEachPair(n, [&](int64_t i) { Store(f(d, Load(a.data + i)), out + i); });
}

template <class F>
HWY_INLINE void Map(int64_t n, Operand a, Operand b, float* out, F f) {
  const D d;
  if (a.scalar && b.scalar) return Fill(n, f(d, hn::Set(d, *a.data), hn::Set(d, *b.data)), out);
  if (a.scalar) {
    const V va = hn::Set(d, *a.data);
    ForEachPair(n, [&](int64_t i) { Store(f(d, va, Load(b.data + i)), out + i); });
  } else if (b.scalar) {
    const V vb = hn::Set(d, *b.data);
    ForEachPair(n, [&](int64_t i) { Store(f(d, Load(a.data + i), vb), out + i); });
  } else {
    ForEachPair(n, [&](int64_t i) { Store(f(d, Load(a.data + i), Load(b.data + i)), out + i); });
  }
}

template <class F>
HWY_INLINE void Map(int64_t n, Operand a, Operand b, Operand c, float* out, F f) {
  const D d;
  const int64_t sa = a.scalar ? 0 : 1, sb = b.scalar ? 0 : 1, sc = c.scalar ? 0 : 1;
  ForEachPair(
      n, [&](int64_t i) { Store(f(d, Load(a.data + i * sa), Load(b.data + i * sb), Load(c.data + i * sc)), out + i); });
}

// x != y, which is true of NaN; hn::Ne is false there on x86.
HWY_INLINE hn::Mask<D> Differs(V x, V y) { return hn::Not(hn::Eq(x, y)); }
HWY_INLINE hn::Mask<D> IsTrue(V x) { return Differs(x, hn::Zero(D())); }

template <class M>
HWY_INLINE V Truth(D d, M mask) {
  return hn::IfThenElseZero(mask, hn::Set(d, 1.0f));
}

HWY_INLINE V Sign(D d, V x) {
  const V zero = hn::Zero(d);
  const V s = hn::IfThenElse(hn::Eq(x, zero), zero, hn::CopySign(hn::Set(d, 1.0f), x));
  return hn::IfThenElse(hn::Eq(x, x), s, x);
}

// Whether both are the same number, and of zeros with the same sign.
HWY_INLINE bool Same(float a, float b) { return std::memcmp(&a, &b, sizeof(a)) == 0; }

// The library's, element by element; of equal neighbours, as a number for all elements gives them, once.
HWY_INLINE V Power(D d, V x, V y) {
  constexpr size_t kMost = hn::MaxLanes(D());
  HWY_ALIGN float base[kMost], exponent[kMost], power[kMost];
  hn::Store(x, d, base);
  hn::Store(y, d, exponent);
  for (size_t i = 0; i < hn::Lanes(d); ++i) {
    const bool again = i > 0 && Same(base[i], base[i - 1]) && Same(exponent[i], exponent[i - 1]);
    power[i] = again ? power[i - 1] : std::pow(base[i], exponent[i]);
  }
  return hn::Load(d, power);
}

// Powers with an exponent for which there are better ways; whether `y` is one of those.
bool FixedPower(int64_t n, Operand a, float y, float* out) {
  // pow has no -0 and no NaN of -inf, as the root has.
  const auto root = [](D d, V x) {
    const V infinity = hn::Inf(d);
    return hn::IfThenElse(hn::Eq(x, hn::Neg(infinity)), infinity, hn::Sqrt(hn::Add(x, hn::Zero(d))));
  };
  if (y == 2) return Map(n, a, out, [](D, V x) { return hn::Mul(x, x); }), true;
  if (y == 3) return Map(n, a, out, [](D, V x) { return hn::Mul(hn::Mul(x, x), x); }), true;
  if (y == 4) return Map(n, a, out, [](D, V x) { return hn::Mul(hn::Mul(x, x), hn::Mul(x, x)); }), true;
  if (y == -1) return Map(n, a, out, [](D d, V x) { return hn::Div(hn::Set(d, 1), x); }), true;
  if (y == -2) return Map(n, a, out, [](D d, V x) { return hn::Div(hn::Set(d, 1), hn::Mul(x, x)); }), true;
  if (y == 0.5f) return Map(n, a, out, root), true;
  if (y == -0.5f) return Map(n, a, out, [&](D d, V x) { return hn::Div(hn::Set(d, 1), root(d, x)); }), true;
  return false;
}

// Runs one instruction over `n` elements and up to two vectors.
void RunInstr(ScalarOp op, int64_t n, Operand a, Operand b, Operand c, float* out) {
  if (op == ScalarOp::kPow && b.scalar && FixedPower(n, a, *b.data, out)) return;
  if (op == kMulAdd) return Map(n, a, b, c, out, [](D, V x, V y, V z) { return hn::MulAdd(x, y, z); });
  if (op == kMulSub) return Map(n, a, b, c, out, [](D, V x, V y, V z) { return hn::MulSub(x, y, z); });
  if (op == kNegMulAdd) return Map(n, a, b, c, out, [](D, V x, V y, V z) { return hn::NegMulAdd(x, y, z); });
  switch (op) {
    case ScalarOp::kInput:
    case ScalarOp::kConst:
      return Map(n, a, out, [](D, V x) { return x; });
#define MSLUA_SCALAR(id, name, short_name, arity, result, cost, number, vector, ...) \
  case ScalarOp::k##id:                                                              \
    return Map(n, MSLUA_OPERANDS_##arity, out, []([[maybe_unused]] D d, MSLUA_VECTORS_##arity) { return vector; });
#include "core/op/scalar_functions-inl.h"
  }
}

// Runs all instructions over one tile. `slots[s]` is where slot s lies.
void RunCode(const TileInstr* code, int64_t count, int64_t n, const float* const* slots, const bool* scalar,
             float* const* out) {
  for (int64_t k = 0; k < count; ++k) {
    const TileInstr& i = code[k];
    const auto operand = [&](int32_t s) { return s < 0 ? Operand{nullptr, true} : Operand{slots[s], scalar[s]}; };
    RunInstr(i.op, n, operand(i.args[0]), operand(i.args[1]), operand(i.args[2]), out[i.out]);
  }
}

// Past the caches; `out` begins where a vector may, and n is of whole vectors. A fence comes before others read it.
void Stream(const float* in, int64_t n, float* out) {
  const D d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < n; i += lanes) hn::Stream(hn::LoadU(d, in + i), d, out + i);
}

void FromBool(const bool* in, int64_t n, float* out) {
  const D d;
  const hn::RebindToSigned<D> di;
  const hn::Rebind<uint8_t, D> db;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto bytes = hn::LoadU(db, reinterpret_cast<const uint8_t*>(in) + i);
    hn::StoreU(hn::ConvertTo(d, hn::PromoteTo(di, bytes)), d, out + i);
  }
  for (; i < n; ++i) out[i] = in[i];
}

// Everything but 0 is true.
void ToBool(const float* in, int64_t n, bool* out) {
  const D d;
  const hn::RebindToSigned<D> di;
  const hn::Rebind<uint8_t, D> db;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto one = Truth(d, IsTrue(hn::LoadU(d, in + i)));
    hn::StoreU(hn::DemoteTo(db, hn::ConvertTo(di, one)), db, reinterpret_cast<uint8_t*>(out) + i);
  }
  for (; i < n; ++i) out[i] = in[i] != 0;
}

}  // namespace HWY_NAMESPACE
}  // namespace mslua
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mslua {
namespace {

HWY_EXPORT(RunCode);
HWY_EXPORT(Stream);
HWY_EXPORT(FromBool);
HWY_EXPORT(ToBool);

// Tiles are written two whole vectors at a time: space for the widest after each.
constexpr int64_t kTilePadding = 64;
constexpr int64_t kTileFloats = kTileElements + kTilePadding;

int TileArity(ScalarOp op) { return op == kMulAdd || op == kMulSub || op == kNegMulAdd ? 3 : Arity(op); }

// Work of one element, in elements of a copy: what makes a chain worth a second thread.
int64_t CostOf(const ScalarProgram& p) {
  int64_t cost = 1;
  for (const ScalarInstr& i : p.code) cost += CostOf(i.op);
  return cost;
}

// Elements after which a dense row repeats, as a channel's numbers do over pixels; 0: something else.
int64_t RowOf(const Shape& sizes, const Shape& strides) {
  const bool repeats = sizes.size() == 2 && strides[0] == 0 && strides[1] == 1;
  return repeats ? sizes[1] : 0;
}

// Whether conversions.h has T.
template <class T>
constexpr bool kConverts = std::is_same_v<T, F16> || std::is_same_v<T, BF16> ||
                           (std::is_integral_v<T> && !std::is_same_v<T, bool>);

void LoadDense(DType t, const void* data, int64_t begin, int64_t n, float* out) {
  if (t == DType::kF32) {
    std::memcpy(out, static_cast<const float*>(data) + begin, static_cast<size_t>(n) * sizeof(float));
    return;
  }
  if (t == DType::kBool) return HWY_DYNAMIC_DISPATCH(FromBool)(static_cast<const bool*>(data) + begin, n, out);
  DispatchDType(t, [&](auto zero) {
    using T = decltype(zero);
    const T* const in = static_cast<const T*>(data) + begin;
    if constexpr (kConverts<T>)
      ToFloats(in, n, out);
    else
      for (int64_t i = 0; i < n; ++i) out[i] = static_cast<float>(in[i]);
  });
}

void StoreDense(DType t, const float* in, int64_t begin, int64_t n, void* data) {
  if (t == DType::kF32) {
    std::memmove(static_cast<float*>(data) + begin, in, static_cast<size_t>(n) * sizeof(float));
    return;
  }
  if (t == DType::kBool) return HWY_DYNAMIC_DISPATCH(ToBool)(in, n, static_cast<bool*>(data) + begin);
  DispatchDType(t, [&](auto zero) {
    using T = decltype(zero);
    T* const out = static_cast<T*>(data) + begin;
    if constexpr (kConverts<T>)
      FromFloats(in, n, out);
    else
      for (int64_t i = 0; i < n; ++i) out[i] = static_cast<T>(in[i]);
  });
}

// A whole tile past the caches; `own` is a tile for what is not f32.
void StreamTile(DType t, const float* in, int64_t begin, float* own, void* data) {
  const int64_t element = SizeOf(t);
  if (t != DType::kF32) {
    StoreDense(t, in, 0, kTileElements, own);
    in = own;
  }
  HWY_DYNAMIC_DISPATCH(Stream)
  (in, kTileElements * element / static_cast<int64_t>(sizeof(float)),
   reinterpret_cast<float*>(static_cast<char*>(data) + begin * element));
}

}  // namespace

bool TileProgram::Supports(const ScalarProgram& program, absl::Span<const TensorType> inputs,
                           absl::Span<const TensorType> outputs) {
  if (static_cast<int64_t>(program.code.size()) > kMaxTileSlots) return false;
  bool has_float = false, truths = true;
  for (const auto& span : {inputs, outputs}) {
    for (const TensorType& t : span) {
      if (t.dtype == DType::kF64) return false;
      has_float |= IsFloat(t.dtype);
      truths &= t.dtype == DType::kBool;
    }
  }
  const auto stays_small = [](const ScalarInstr& i) {
    return i.op == ScalarOp::kConst ? i.constant == 0 || i.constant == 1 : ResultOf(i.op) != ScalarResult::kRounded;
  };
  return has_float || (truths && std::all_of(program.code.begin(), program.code.end(), stays_small));
}

// Products that only a sum or a difference reads become one instruction with it.
std::vector<ScalarInstr> TileProgram::Lower(const ScalarProgram& program) {
  std::vector<ScalarInstr> code = program.code;
  std::vector<int> uses(code.size(), 0);
  for (const ScalarInstr& i : code) {
    for (int k = 0; k < Arity(i.op); ++k) ++uses[i.args[k]];
  }
  for (int32_t r : program.results) ++uses[r];
  for (ScalarInstr& i : code) {
    if (i.op != ScalarOp::kAdd && i.op != ScalarOp::kSub) continue;
    for (int k = 0; k < 2; ++k) {
      ScalarInstr& product = code[i.args[k]];
      if (product.op != ScalarOp::kMul || uses[i.args[k]] != 1) continue;
      const int32_t other = i.args[1 - k];
      i.op = i.op == ScalarOp::kAdd ? kMulAdd : k == 0 ? kMulSub : kNegMulAdd;
      i.args[0] = product.args[0];
      i.args[1] = product.args[1];
      i.args[2] = other;
      product = ScalarInstr();  // nobody reads it: a number costs nothing
      break;
    }
  }
  return code;
}

// Slots: inputs first, then constants, then tiles that instructions share once their last reader is past. A result's
// tile is its own, since it may be the output's memory. What is made of numbers alone is a number, in a slot of its
// own.
void TileProgram::Schedule(const std::vector<ScalarInstr>& code, const std::vector<int32_t>& results) {
  const int32_t count = static_cast<int32_t>(code.size());
  std::vector<int32_t> slot(count, -1), last_use(count, -1), tile_instr(count, -1);
  for (int32_t v = 0; v < count; ++v) {
    for (int k = 0; k < TileArity(code[v].op); ++k) last_use[code[v].args[k]] = v;
  }
  std::vector<char> is_result(count, 0);
  for (int32_t r : results) {
    last_use[r] = count;
    is_result[r] = 1;
  }
  for (int32_t v = 0; v < count; ++v) {
    const ScalarInstr& i = code[v];
    if (i.op == ScalarOp::kInput) {
      Input& in = inputs_[i.args[0]];
      if (in.slot < 0) {
        in.slot = slots_++;
        in.used = true;
        slot_is_scalar_.push_back(in.scalar);
      }
      slot[v] = in.slot;
    } else if (i.op == ScalarOp::kConst && last_use[v] >= 0) {
      slot[v] = slots_++;
      slot_is_scalar_.push_back(true);
      constants_.emplace_back(slot[v], static_cast<float>(i.constant));
    }
  }
  std::vector<int32_t> free_slots;
  for (int32_t v = 0; v < count; ++v) {
    const ScalarInstr& i = code[v];
    const int arity = TileArity(i.op);
    if (arity == 0) continue;
    TileInstr t;
    t.op = i.op;
    for (int k = 0; k < 3; ++k) t.args[k] = k < arity ? slot[i.args[k]] : -1;
    if (std::all_of(t.args, t.args + arity, [this](int32_t s) { return slot_is_scalar_[s]; })) {
      t.out = slot[v] = slots_++;
      slot_is_scalar_.push_back(true);
      numbers_.push_back(t);
      continue;
    }
    tile_instr[v] = static_cast<int32_t>(code_.size());
    // An operand's tile may be the result's: instructions read an element before they write it.
    for (int k = 0; k < arity; ++k) {
      const int32_t a = i.args[k];
      if (code[a].op == ScalarOp::kInput) inputs_[code[a].args[0]].last_read = tile_instr[v];
      if (last_use[a] == v && TileArity(code[a].op) > 0 && !slot_is_scalar_[slot[a]] &&
          std::find(free_slots.begin(), free_slots.end(), slot[a]) == free_slots.end()) {
        free_slots.push_back(slot[a]);
      }
    }
    if (free_slots.empty() || is_result[v]) {
      free_slots.push_back(slots_++);
      slot_is_scalar_.push_back(false);
    }
    t.out = slot[v] = free_slots.back();
    free_slots.pop_back();
    code_.push_back(t);
  }
  for (int32_t r : results) {
    results_.push_back(slot[r]);
    result_made_.push_back(tile_instr[r]);
    // An input that is a result is read at the very end.
    if (code[r].op == ScalarOp::kInput) inputs_[code[r].args[0]].last_read = static_cast<int32_t>(code_.size());
  }
  // A value that is two results, or an input that is one, is copied.
  for (size_t o = 0; o < results_.size(); ++o) {
    if (std::count(results_.begin(), results_.end(), results_[o]) > 1) result_made_[o] = -1;
  }
}

// Whether an output may be written where it goes as soon as it is made: no input that lies there is read after.
bool TileProgram::WritesDirectly(size_t output, const void* const* inputs, void* const* outputs) const {
  if (result_made_[output] < 0 || output_types_[output] != DType::kF32) return false;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (inputs_[i].used && inputs[i] == outputs[output] && inputs_[i].last_read > result_made_[output]) return false;
  }
  return true;
}

bool TileProgram::WritesPastCaches(size_t output, const void* const* inputs, void* const* outputs) const {
  constexpr uintptr_t kWidestVector = 64;  // bytes
  if (!result_kept_[output] || reinterpret_cast<uintptr_t>(outputs[output]) % kWidestVector != 0) return false;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (inputs[i] == outputs[output]) return false;
  }
  return true;
}

TileProgram::TileProgram(const ScalarProgram& program, absl::Span<const TensorType> inputs,
                         absl::Span<const TensorType> outputs, absl::Span<const int64_t> kept)
    : result_kept_(outputs.size(), false) {
  for (const int64_t o : kept) result_kept_[static_cast<size_t>(o)] = true;
  const Shape& shape = outputs[0].shape;
  elements_ = NumElements(shape);
  for (const TensorType& t : outputs) output_types_.push_back(t.dtype);
  for (const TensorType& t : inputs) {
    Input in;
    in.dtype = t.dtype;
    in.scalar = t.elements() == 1;
    in.dense = t.shape == shape && !in.scalar;
    if (!in.dense && !in.scalar) {
      const Shape own = RowMajorStrides(t.shape);
      const int64_t lead = static_cast<int64_t>(shape.size()) - t.rank();
      for (int64_t d = 0; d < static_cast<int64_t>(shape.size()); ++d) {
        if (shape[d] == 1) continue;
        const bool repeats = d < lead || t.shape[d - lead] == 1;
        const int64_t stride = repeats ? 0 : own[d - lead];
        const bool merges =
            !in.sizes.empty() && (repeats ? in.strides.back() == 0 : in.strides.back() == stride * shape[d]);
        if (merges) {
          in.sizes.back() *= shape[d];
          in.strides.back() = stride;
        } else {
          in.sizes.push_back(shape[d]);
          in.strides.push_back(stride);
        }
      }
    }
    inputs_.push_back(std::move(in));
  }

  Schedule(Lower(program), program.results);
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const bool alone = results_.size() == 1 && results_[0] == inputs_[i].slot && output_types_[0] == DType::kF32;
    if (alone && inputs_[i].dense && inputs_[i].dtype != DType::kF32) converted_ = static_cast<int32_t>(i);
  }
  grain_ = std::max<int64_t>(kTileElements, (int64_t{64} << 10) / CostOf(program) / kTileElements * kTileElements);
  threads_ = std::max<int64_t>(1, std::min<int64_t>(ComputeThreads(), CeilDiv(elements_, grain_)));
  // One tile more, for results that are one number, and for those that are written past the caches.
  thread_bytes_ = (slots_ + 1) * kTileFloats * static_cast<int64_t>(sizeof(float));
}

namespace {

// In stretches of a fixed length, which compilers make vectors of.
void Repeat(float value, int64_t n, float* out) {
  constexpr int64_t kStretch = 16;
  int64_t i = 0;
  for (; i + kStretch <= n; i += kStretch) {
    for (int64_t k = 0; k < kStretch; ++k) out[i + k] = value;
  }
  for (; i < n; ++i) out[i] = value;
}

}  // namespace

void TileProgram::LoadBroadcast(const Input& in, const void* data, int64_t begin, int64_t n, float* out) const {
  const int64_t inner = in.sizes.back();
  int64_t done = 0;
  while (done < n) {
    int64_t rest = begin + done;
    const int64_t at = rest % inner;
    rest /= inner;
    int64_t offset = at * in.strides.back();
    for (int64_t d = static_cast<int64_t>(in.sizes.size()) - 2; d >= 0; --d) {
      offset += rest % in.sizes[d] * in.strides[d];
      rest /= in.sizes[d];
    }
    const int64_t run = std::min(n - done, inner - at);
    if (in.strides.back() == 0) {
      float one;
      LoadDense(in.dtype, data, offset, 1, &one);
      Repeat(one, run, out + done);
    } else {
      LoadDense(in.dtype, data, offset, run, out + done);
    }
    done += run;
  }
}

void TileProgram::RunRange(const void* const* inputs, void* const* outputs, float* tiles, int64_t begin,
                           int64_t end) const {
  if (converted_ >= 0 && !WritesPastCaches(0, inputs, outputs)) {
    LoadDense(inputs_[converted_].dtype, inputs[converted_], begin, end - begin,
              static_cast<float*>(outputs[0]) + begin);
    return;
  }
  const float* read[kMaxTileSlots];
  float* write[kMaxTileSlots];
  bool scalar[kMaxTileSlots], direct[kMaxTileSlots], past_caches[kMaxTileSlots];
  for (int32_t s = 0; s < slots_; ++s) {
    write[s] = tiles + s * kTileFloats;
    read[s] = write[s];
    scalar[s] = slot_is_scalar_[s];
  }
  // Numbers fill the widest vector.
  const auto set = [&](int32_t slot, float value) { std::fill_n(write[slot], kTilePadding, value); };
  for (const auto& c : constants_) set(c.first, c.second);
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (!inputs_[i].used || !inputs_[i].scalar) continue;
    float value;
    LoadDense(inputs_[i].dtype, inputs[i], 0, 1, &value);
    set(inputs_[i].slot, value);
  }
  const auto run = [&](const std::vector<TileInstr>& code, int64_t n) {
    HWY_DYNAMIC_DISPATCH(RunCode)(code.data(), static_cast<int64_t>(code.size()), n, read, scalar, write);
  };
  run(numbers_, kTilePadding);
  const bool whole = end - begin >= kTileElements;  // else there is no tile that could go there
  bool streams = false;
  for (size_t o = 0; o < results_.size(); ++o) {
    past_caches[o] = whole && WritesPastCaches(o, inputs, outputs);
    direct[o] = whole && !past_caches[o] && WritesDirectly(o, inputs, outputs);
    streams |= past_caches[o];
  }
  for (int64_t at = begin; at < end; at += kTileElements) {
    const int64_t n = std::min(kTileElements, end - at);
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const Input& in = inputs_[i];
      if (!in.used || in.scalar) continue;
      // A whole tile of f32 is read where it lies; a last, partial one is copied, since vectors read past it.
      const bool in_place = in.dtype == DType::kF32 && n == kTileElements;
      const int64_t row = RowOf(in.sizes, in.strides), phase = row > 0 ? at % row : 0;
      if (in.dense && in_place) {
        read[in.slot] = static_cast<const float*>(inputs[i]) + at;
      } else if (in_place && phase + kTileElements <= row) {
        read[in.slot] = static_cast<const float*>(inputs[i]) + phase;
      } else if (row > 0 && (row <= kTilePadding || kTileElements % row == 0)) {
        // Rows from the first on, and one more, so that tiles may begin anywhere in one.
        if (at == begin) LoadBroadcast(in, inputs[i], 0, n + (row <= kTilePadding ? row : 0), write[in.slot]);
        read[in.slot] = write[in.slot] + phase;
      } else {
        read[in.slot] = write[in.slot];
        // One element, such as a row's factor, repeats over the whole tile.
        scalar[in.slot] = !in.dense && in.strides.back() == 0 && at % in.sizes.back() + n <= in.sizes.back();
        if (in.dense) {
          LoadDense(in.dtype, inputs[i], at, n, write[in.slot]);
        } else if (scalar[in.slot]) {
          float one;
          LoadBroadcast(in, inputs[i], at, 1, &one);
          set(in.slot, one);
        } else {
          LoadBroadcast(in, inputs[i], at, n, write[in.slot]);
        }
      }
    }
    for (size_t o = 0; o < results_.size(); ++o) {
      if (!direct[o]) continue;
      const int32_t s = results_[o];
      write[s] = n == kTileElements ? static_cast<float*>(outputs[o]) + at : tiles + s * kTileFloats;
      read[s] = write[s];
    }
    run(code_, n);
    for (size_t o = 0; o < results_.size(); ++o) {
      const int32_t s = results_[o];
      if (direct[o] && n == kTileElements) continue;
      float* const tile = tiles + slots_ * kTileFloats;
      if (scalar[s]) {
        // A constant or scalar result: spread it.
        std::fill(tile, tile + n, read[s][0]);
        StoreDense(output_types_[o], tile, at, n, outputs[o]);
      } else if (past_caches[o] && n == kTileElements) {
        StreamTile(output_types_[o], read[s], at, tile, outputs[o]);
      } else {
        StoreDense(output_types_[o], read[s], at, n, outputs[o]);
      }
    }
  }
  if (streams) hwy::FlushStream();
}

void TileProgram::Run(const void* const* inputs, void* const* outputs, void* scratch) const {
  if (threads_ == 1) {
    RunRange(inputs, outputs, static_cast<float*>(scratch), 0, elements_);
    return;
  }
  // Shares are whole tiles, one for each thread's own scratch.
  const int64_t tiles = CeilDiv(elements_, kTileElements);
  ParallelFor(threads_, 1, [&](int64_t first, int64_t last) {
    for (int64_t t = first; t < last; ++t) {
      const int64_t begin = tiles * t / threads_ * kTileElements,
                    end = std::min(elements_, tiles * (t + 1) / threads_ * kTileElements);
      RunRange(inputs, outputs, reinterpret_cast<float*>(static_cast<char*>(scratch) + t * thread_bytes_), begin, end);
    }
  });
}

}  // namespace mslua
#endif  // HWY_ONCE
