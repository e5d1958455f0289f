#include "core/ops/support/attention.h"

#include <algorithm>
#include <cmath>

#include "absl/types/optional.h"
#include "core/base/parallel_for.h"
#include "core/ops/support/attention_amx.h"
#include "core/ops/support/small_matmul.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/ops/support/attention.cc"
// foreach_target.h first: it includes this file once for each instruction set.
// clang-format off
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "hwy/contrib/math/math-inl.h"
#include "core/ops/support/simd-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace mslua {
namespace HWY_NAMESPACE {

HWY_INLINE V32 ExpOf(V32 v) { return hn::IfThenElse(hn::IsNaN(v), v, hn::Exp(F32(), v)); }
HWY_INLINE V32 Pad(V32 v, size_t n, float rest) {
  const F32 d;
  return n == hn::Lanes(d) ? v : hn::IfThenElse(hn::FirstN(d, n), v, hn::Set(d, rest));
}

// One row of n scores becomes exp(score - max), where max and sum are of all rows' tiles so far. Gives the factor by
// which what was summed before shrinks.
float OnlineSoftmax(float* row, int64_t n, float* max, float* sum) {
  const F32 d;
  V32 best = hn::Set(d, *max), total = hn::Zero(d);
  ForEachVector(n, [&](int64_t i, size_t k) { best = hn::Max(best, Pad(LoadN(row + i, k), k, -INFINITY)); });
  const float top = hn::GetLane(hn::MaxOfLanes(d, best));
  const V32 shift = hn::Set(d, top);
  ForEachVector(n, [&](int64_t i, size_t k) {
    const V32 p = ExpOf(hn::Sub(Pad(LoadN(row + i, k), k, -INFINITY), shift));
    StoreN(p, row + i, k);
    total = hn::Add(total, p);
  });
  const float shrink = std::exp(*max - top);
  *max = top;
  *sum = *sum * shrink + hn::GetLane(hn::SumOfLanes(d, total));
  return shrink;
}

void Scale(float* row, int64_t n, float factor) {
  const V32 f = hn::Set(F32(), factor);
  ForEachVector(n, [&](int64_t i, size_t k) { StoreN(hn::Mul(LoadN(row + i, k), f), row + i, k); });
}

// Scores become probabilities exp(score - lse), and dp their gradients' scores: p * (dp - delta) * scale.
void ScoreGradient(float* scores, float* dp, int64_t n, float lse, float delta, float scale) {
  const F32 d;
  ForEachVector(n, [&](int64_t i, size_t k) {
    const V32 p = ExpOf(hn::Sub(LoadN(scores + i, k), hn::Set(d, lse)));
    StoreN(p, scores + i, k);
    StoreN(hn::Mul(hn::Mul(p, hn::Sub(LoadN(dp + i, k), hn::Set(d, delta))), hn::Set(d, scale)), dp + i, k);
  });
}

float DotF32(const float* a, const float* b, int64_t n) {
  V32 sum = hn::Zero(F32());
  ForEachVector(n, [&](int64_t i, size_t k) { sum = hn::MulAdd(LoadN(a + i, k), LoadN(b + i, k), sum); });
  return hn::GetLane(hn::SumOfLanes(F32(), sum));
}

void ToF32(const BF16* from, float* to, int64_t n) {
  ForEachVector(n, [&](int64_t i, size_t k) { StoreN(LoadN(from + i, k), to + i, k); });
}
void ToBF16(const float* from, BF16* to, int64_t n) {
  ForEachVector(n, [&](int64_t i, size_t k) { StoreN(LoadN(from + i, k), to + i, k); });
}

}  // namespace HWY_NAMESPACE
}  // namespace mslua
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mslua {

// packed_attention.cc
Attention PackedAttention(const Attrs& attrs, const Shape& qkv);

HWY_EXPORT(OnlineSoftmax);
HWY_EXPORT(Scale);
HWY_EXPORT(ScoreGradient);
HWY_EXPORT(DotF32);
HWY_EXPORT(ToF32);
HWY_EXPORT(ToBF16);

namespace {

constexpr int64_t kQueries = 32, kKeys = 128;  // a tile of scores: 16 KiB
// From so many rows on, heads that lie between each other are read often enough to be worth a dense copy.
constexpr int64_t kCopiedRows = 128;

// Rows of a matrix of f32.
template <class T>
struct RowsOf {
  T* data;
  int64_t stride;
  T* operator[](int64_t r) const { return data + r * stride; }
};
using ConstRows = RowsOf<const float>;
using MutableRows = RowsOf<float>;

int64_t RoundUpToKeys(int64_t n) { return (n + kKeys - 1) / kKeys * kKeys; }

// How many keys lie side by side in what is transposed.
int64_t KeyWidth(int64_t keys) { return std::min(keys, kKeys); }

// [rows, columns] to [columns, KeyWidth] for each kKeys rows: what a tile of scores reads lies together, where rows as
// long as a head has keys would share few lines of the nearest cache.
void Transpose(ConstRows from, float* to, int64_t rows, int64_t columns) {
  const int64_t width = KeyWidth(rows);
  for (int64_t r0 = 0; r0 < rows; r0 += 16) {
    const int64_t r1 = std::min(rows, r0 + 16);
    float* const block = to + r0 / kKeys * kKeys * columns;
    for (int64_t c = 0; c < columns; ++c) {
      for (int64_t r = r0; r < r1; ++r) block[c * width + r % kKeys] = from[r][c];
    }
  }
}

// Hands out parts of a block of floats; of none, it only counts.
class Floats {
 public:
  explicit Floats(float* block) : block_(block) {}
  float* Take(int64_t n) {
    float* p = block_ == nullptr ? nullptr : block_ + taken_;
    taken_ += (n + 15) / 16 * 16;
    return p;
  }
  int64_t taken() const { return taken_; }

 private:
  float* const block_;
  int64_t taken_ = 0;
};

// Where the matrices [rows, columns] of every head lie in an operand.
struct Heads {
  int64_t inner = 1;                                           // heads that lie between each other
  int64_t outer_stride = 0, inner_stride = 0, row_stride = 0;  // elements
  int64_t rows = 0, columns = 0;

  int64_t At(int64_t h) const { return h / inner * outer_stride + h % inner * inner_stride; }

  // One matrix after another.
  static Heads Dense(int64_t rows, int64_t columns) { return {1, rows * columns, 0, columns, rows, columns}; }
  // Columns [first + h * columns, ..) of [batch, rows, width].
  static Heads Columns(int64_t heads, int64_t rows, int64_t columns, int64_t width) {
    return {heads, rows * width, columns, width, rows, columns};
  }
};

// An operand: what it is made of, and where in the buffers it starts.
struct Operand {
  Heads heads;
  int index = 0;       // of the inputs or outputs
  int64_t offset = 0;  // elements
};

// How a kernel has its heads: in the operands' own memory, or as dense f32 copies of them.
struct Copies {
  bool bf16 = false, f32 = false;
  bool any() const { return bf16 || f32; }
};

// Head `h` of an operand as f32: its own memory, or a copy in `space`.
ConstRows HeadAsF32(Copies copies, const Buffers& b, const Operand& o, int64_t h, float* space) {
  const int64_t at = o.offset + o.heads.At(h), columns = o.heads.columns;
  const ConstRows own = {static_cast<const float*>(b.inputs[o.index]) + at, o.heads.row_stride};
  if (!copies.any()) return own;
  const BF16* from = static_cast<const BF16*>(b.inputs[o.index]) + at;
  for (int64_t r = 0; r < o.heads.rows; ++r) {
    if (copies.bf16)
      HWY_DYNAMIC_DISPATCH(ToF32)(from + r * o.heads.row_stride, space + r * columns, columns);
    else
      std::copy_n(own[r], columns, space + r * columns);
  }
  return {space, columns};
}

// Where f32 results of rows from `row` on are made; StoreResult brings copies home.
MutableRows ResultSpace(Copies copies, const Buffers& b, const Operand& o, int64_t h, int64_t row, float* space) {
  if (copies.any()) return {space, o.heads.columns};
  return {static_cast<float*>(b.outputs[o.index]) + o.offset + o.heads.At(h) + row * o.heads.row_stride,
          o.heads.row_stride};
}
void StoreResult(Copies copies, MutableRows from, const Buffers& b, const Operand& o, int64_t h, int64_t row,
                 int64_t rows) {
  if (!copies.any()) return;
  const int64_t at = o.offset + o.heads.At(h) + row * o.heads.row_stride;
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t to = at + r * o.heads.row_stride;
    if (copies.bf16)
      HWY_DYNAMIC_DISPATCH(ToBF16)(from[r], static_cast<BF16*>(b.outputs[o.index]) + to, o.heads.columns);
    else
      std::copy_n(from[r], o.heads.columns, static_cast<float*>(b.outputs[o.index]) + to);
  }
}

void FillZero(MutableRows m, int64_t rows, int64_t columns) {
  for (int64_t r = 0; r < rows; ++r) std::fill_n(m[r], columns, 0.0f);
}

// Scores of queries [i, i + m) and keys [j, j + n), n <= kKeys, j a multiple of kKeys: rows of kKeys floats.
void Scores(const Attention& a, ConstRows q, const float* kt, int64_t i, int64_t m, int64_t j, int64_t n,
            float* scores) {
  SmallProduct p{m, n, a.d, q.stride, 1, KeyWidth(a.s), kKeys};
  p.scale = static_cast<float>(a.scale);
  SmallMatmul(p, q[i], kt + j * a.d, scores);
}

// The operands of both directions. Backward delta is the sum over a row of dy * y less lse's gradient: given, or when
// y is given instead, computed.
struct Operands {
  Operand q, k, v, y, dy, dq, dk, dv;
  int lse = 0;     // forward: of the outputs
  int delta = -1;  // of the inputs; -1: from y
};

class AttentionKernel : public Kernel {
 public:
  // `tiles`: f32 on the processor's tiles. bf16 takes them where it can.
  AttentionKernel(const Attention& a, const Operands& operands, DType t, bool grad, bool tiles)
      : a_(a),
        o_(operands),
        copies_{t == DType::kBF16, t == DType::kF32 && a.t >= kCopiedRows && operands.q.heads.row_stride > a.d},
        grad_(grad),
        slots_(std::min<int64_t>(ComputeThreads(), a.heads)) {
    if ((tiles || copies_.bf16) && amx::Supports(a.t, a.s, a.d, a.e)) {
      tiled_ = amx::Head{a.t, a.d, a.causal, static_cast<float>(a.scale)};
      slot_bytes_ = copies_.bf16 ? TiledBytes<BF16>() : TiledBytes<float>();
      return;
    }
    Floats space(nullptr);
    Lay(space);
    slot_bytes_ = space.taken() * static_cast<int64_t>(sizeof(float));
  }

  int64_t scratch_bytes() const override { return slots_ * slot_bytes_; }

  Status Run(const Buffers& b) override {
    ParallelFor(slots_, 1, [&](int64_t begin, int64_t end) {
      for (int64_t slot = begin; slot < end; ++slot) {
        char* const scratch = static_cast<char*>(b.scratch) + slot * slot_bytes_;
        const int64_t first = a_.heads * slot / slots_, last = a_.heads * (slot + 1) / slots_;
        if (tiled_ && copies_.bf16)
          RunTiled<BF16>(b, first, last, scratch);
        else if (tiled_)
          RunTiled<float>(b, first, last, scratch);
        else
          RunHeads(b, first, last, reinterpret_cast<float*>(scratch));
      }
    });
    return absl::OkStatus();
  }

 private:
  template <class T>
  int64_t TiledBytes() const {
    return grad_ ? amx::BackwardBytes<T>(*tiled_) : amx::ForwardBytes<T>(*tiled_);
  }

  void RunHeads(const Buffers& b, int64_t first, int64_t last, float* scratch) const {
    Floats space(scratch);
    const Space at = Lay(space);
    for (int64_t h = first; h < last; ++h) {
      if (grad_)
        Backward(b, h, at);
      else
        Forward(b, h, at);
    }
  }

  // The same with the processor's tiles.
  template <class T>
  void RunTiled(const Buffers& b, int64_t first, int64_t last, void* scratch) const {
    const amx::Tiles tiles;
    for (int64_t h = first; h < last; ++h) {
      const auto in = [&](const Operand& o) {
        return amx::Rows<T>{static_cast<const T*>(b.inputs[o.index]) + o.offset + o.heads.At(h), o.heads.row_stride};
      };
      const auto out = [&](const Operand& o) {
        return amx::MutableRows<T>{static_cast<T*>(b.outputs[o.index]) + o.offset + o.heads.At(h), o.heads.row_stride};
      };
      const auto row_numbers = [&](int input) { return static_cast<const float*>(b.inputs[input]) + h * a_.t; };
      if (grad_) {
        const bool has_delta = o_.delta >= 0;
        amx::Backward<T>(*tiled_, in(o_.q), in(o_.k), in(o_.v), has_delta ? amx::Rows<T>{} : in(o_.y), in(o_.dy),
                         row_numbers(o_.lse), has_delta ? row_numbers(o_.delta) : nullptr, out(o_.dq), out(o_.dk),
                         out(o_.dv), scratch);
      } else {
        amx::Forward<T>(*tiled_, in(o_.q), in(o_.k), in(o_.v), out(o_.y),
                        static_cast<float*>(b.outputs[o_.lse]) + h * a_.t, scratch);
      }
    }
  }

  // Scratch memory of one thread.
  struct Space {
    float *q, *k, *v, *y, *dy;  // f32 copies of operands
    float *kt, *vt;             // transposed, kKeys rows at a time
    float *scores, *dscores;    // tiles
    float* delta;               // of a head
    float *result, *dk, *dv;    // f32 results: of a tile of queries forward, of a head backward
  };
  Space Lay(Floats& f) const {
    const auto when = [&](bool wanted, int64_t n) { return f.Take(wanted ? n : 0); };
    Space s;
    const bool copied = copies_.any();
    s.q = when(copied, a_.t * a_.d);
    s.k = when(copied, a_.s * a_.d);
    s.v = when(copied, a_.s * a_.e);
    s.y = when(copied && grad_ && o_.delta < 0, a_.t * a_.e);
    s.dy = when(copied && grad_, a_.t * a_.e);
    s.kt = f.Take(RoundUpToKeys(a_.s) * a_.d);
    s.vt = when(grad_, RoundUpToKeys(a_.s) * a_.e);
    s.scores = f.Take(kQueries * kKeys);
    s.dscores = when(grad_, kQueries * kKeys);
    s.delta = when(grad_ && o_.delta < 0, a_.t);
    s.result = when(copied, grad_ ? a_.t * a_.d : kQueries * a_.e);
    s.dk = when(copied && grad_, a_.s * a_.d);
    s.dv = when(copied && grad_, a_.s * a_.e);
    return s;
  }

  void Forward(const Buffers& b, int64_t h, const Space& at) const {
    const ConstRows q = HeadAsF32(copies_, b, o_.q, h, at.q), k = HeadAsF32(copies_, b, o_.k, h, at.k),
                    v = HeadAsF32(copies_, b, o_.v, h, at.v);
    Transpose(k, at.kt, a_.s, a_.d);
    float* lse = static_cast<float*>(b.outputs[o_.lse]) + h * a_.t;
    for (int64_t i = 0; i < a_.t; i += kQueries) {
      const int64_t m = std::min(kQueries, a_.t - i);
      const MutableRows y = ResultSpace(copies_, b, o_.y, h, i, at.result);
      float max[kQueries], sum[kQueries];
      std::fill(max, max + m, -INFINITY);
      std::fill(sum, sum + m, 0.0f);
      const int64_t keys = a_.Seen(i + m - 1);
      for (int64_t j = 0; j < keys; j += kKeys) {
        const int64_t n = std::min(kKeys, keys - j);
        Scores(a_, q, at.kt, i, m, j, n, at.scores);
        for (int64_t r = 0; r < m; ++r) {
          float* row = at.scores + r * kKeys;
          const int64_t seen = std::clamp<int64_t>(a_.Seen(i + r) - j, 0, n);
          std::fill(row + seen, row + n, 0.0f);
          if (seen == 0) continue;
          const float shrink = HWY_DYNAMIC_DISPATCH(OnlineSoftmax)(row, seen, &max[r], &sum[r]);
          if (j > 0) HWY_DYNAMIC_DISPATCH(Scale)(y[r], a_.e, shrink);
        }
        SmallMatmul(SmallProduct{m, a_.e, n, kKeys, 1, v.stride, y.stride, j > 0}, at.scores, v[j], y.data);
      }
      for (int64_t r = 0; r < m; ++r) {
        HWY_DYNAMIC_DISPATCH(Scale)(y[r], a_.e, 1 / sum[r]);
        lse[i + r] = max[r] + std::log(sum[r]);
      }
      StoreResult(copies_, y, b, o_.y, h, i, m);
    }
  }

  // Of each query: the sum over its row of dy * y, less lse's gradient.
  const float* Delta(const Buffers& b, int64_t h, ConstRows dy, const Space& at) const {
    if (o_.delta >= 0) return static_cast<const float*>(b.inputs[o_.delta]) + h * a_.t;
    const ConstRows y = HeadAsF32(copies_, b, o_.y, h, at.y);
    for (int64_t r = 0; r < a_.t; ++r) at.delta[r] = HWY_DYNAMIC_DISPATCH(DotF32)(y[r], dy[r], a_.e);
    return at.delta;
  }

  void Backward(const Buffers& b, int64_t h, const Space& at) const {
    const ConstRows q = HeadAsF32(copies_, b, o_.q, h, at.q), k = HeadAsF32(copies_, b, o_.k, h, at.k),
                    v = HeadAsF32(copies_, b, o_.v, h, at.v), dy = HeadAsF32(copies_, b, o_.dy, h, at.dy);
    const float* lse = static_cast<const float*>(b.inputs[o_.lse]) + h * a_.t;
    const float* delta = Delta(b, h, dy, at);
    const MutableRows dq = ResultSpace(copies_, b, o_.dq, h, 0, at.result),
                      dk = ResultSpace(copies_, b, o_.dk, h, 0, at.dk),
                      dv = ResultSpace(copies_, b, o_.dv, h, 0, at.dv);
    Transpose(k, at.kt, a_.s, a_.d);
    Transpose(v, at.vt, a_.s, a_.e);
    FillZero(dk, a_.s, a_.d);
    FillZero(dv, a_.s, a_.e);
    for (int64_t i = 0; i < a_.t; i += kQueries) {
      const int64_t m = std::min(kQueries, a_.t - i);
      const int64_t keys = a_.Seen(i + m - 1);
      for (int64_t j = 0; j < keys; j += kKeys) {
        const int64_t n = std::min(kKeys, keys - j);
        Scores(a_, q, at.kt, i, m, j, n, at.scores);
        SmallMatmul(SmallProduct{m, n, a_.e, dy.stride, 1, KeyWidth(a_.s), kKeys}, dy[i], at.vt + j * a_.e, at.dscores);
        for (int64_t r = 0; r < m; ++r) {
          float *p = at.scores + r * kKeys, *dp = at.dscores + r * kKeys;
          const int64_t seen = std::clamp<int64_t>(a_.Seen(i + r) - j, 0, n);
          HWY_DYNAMIC_DISPATCH(ScoreGradient)(p, dp, seen, lse[i + r], delta[i + r], static_cast<float>(a_.scale));
          std::fill(p + seen, p + n, 0.0f);
          std::fill(dp + seen, dp + n, 0.0f);
        }
        SmallMatmul(SmallProduct{n, a_.e, m, 1, kKeys, dy.stride, dv.stride, true}, at.scores, dy[i], dv[j]);
        SmallMatmul(SmallProduct{n, a_.d, m, 1, kKeys, q.stride, dk.stride, true}, at.dscores, q[i], dk[j]);
        SmallMatmul(SmallProduct{m, a_.d, n, kKeys, 1, k.stride, dq.stride, j > 0}, at.dscores, k[j], dq[i]);
      }
    }
    StoreResult(copies_, dq, b, o_.dq, h, 0, a_.t);
    StoreResult(copies_, dk, b, o_.dk, h, 0, a_.s);
    StoreResult(copies_, dv, b, o_.dv, h, 0, a_.s);
  }

  const Attention a_;
  const Operands o_;
  const Copies copies_;
  const bool grad_;
  const int64_t slots_;
  int64_t slot_bytes_ = 0;
  absl::optional<amx::Head> tiled_;  // where the processor's tiles are used
};

bool SupportsTypes(const OpSpec& s) {
  return (s.inputs[0].dtype == DType::kF32 || s.inputs[0].dtype == DType::kBF16) && s.outputs[0].elements() > 0;
}

// Operands as core/ops/scaled_dot_product_attention.cc has them: q, k, v -> y, lse; q, k, v, lse, delta, dy -> dq, dk,
// dv.
Operands Separate(const Attention& a, bool grad) {
  const Heads td = Heads::Dense(a.t, a.d), sd = Heads::Dense(a.s, a.d), se = Heads::Dense(a.s, a.e),
              te = Heads::Dense(a.t, a.e);
  Operands o;
  o.q = {td, 0};
  o.k = {sd, 1};
  o.v = {se, 2};
  o.y = {te, 0};
  o.lse = grad ? 3 : 1;
  o.delta = 4;
  o.dy = {te, 5};
  o.dq = {td, 0};
  o.dk = {sd, 1};
  o.dv = {se, 2};
  return o;
}

// Operands as core/ops/packed_attention.cc has them: qkv -> y, lse; qkv, y, lse, dy -> dqkv.
Operands Packed(const Attention& a, int64_t heads, bool grad) {
  const int64_t width = heads * a.d;
  const Heads third = Heads::Columns(heads, a.t, a.d, 3 * width), whole = Heads::Columns(heads, a.t, a.d, width);
  Operands o;
  o.q = {third, 0, 0};
  o.k = {third, 0, width};
  o.v = {third, 0, 2 * width};
  o.y = {whole, grad ? 1 : 0};
  o.lse = grad ? 2 : 1;
  o.dy = {whole, 3};
  o.dq = {third, 0, 0};
  o.dk = {third, 0, width};
  o.dv = {third, 0, 2 * width};
  return o;
}

using MakeOperands = Operands (*)(const OpSpec&, const Attention&, bool grad);
using SizesOf = Attention (*)(const OpSpec&);

// Vectors of f32, and in bf16 the processor's tiles.
FastKernel Vectors(SizesOf sizes, MakeOperands operands, bool grad) {
  return {"highway", SupportsTypes, [=](const OpSpec& s) -> StatusOr<std::unique_ptr<Kernel>> {
            const Attention a = sizes(s);
            return std::make_unique<AttentionKernel>(a, operands(s, a, grad), s.inputs[0].dtype, grad, false);
          }};
}

// f32 on the processor's tiles.
FastKernel Split(SizesOf sizes, MakeOperands operands, bool grad) {
  const auto supports = [=](const OpSpec& s) {
    if (s.inputs[0].dtype != DType::kF32 || s.outputs[0].elements() == 0) return false;
    const Attention a = sizes(s);
    return amx::Supports(a.t, a.s, a.d, a.e);
  };
  return {"bf16x3", supports,
          [=](const OpSpec& s) -> StatusOr<std::unique_ptr<Kernel>> {
            const Attention a = sizes(s);
            return std::make_unique<AttentionKernel>(a, operands(s, a, grad), DType::kF32, grad, true);
          },
          /*bf16_tiles=*/true};
}

Attention SeparateSizes(const OpSpec& s) {
  return Attention::Of(s.attrs, s.inputs[0].shape, s.inputs[1].shape, s.inputs[2].shape);
}
Operands SeparateOperands(const OpSpec&, const Attention& a, bool grad) { return Separate(a, grad); }
Attention PackedSizes(const OpSpec& s) { return PackedAttention(s.attrs, s.inputs[0].shape); }
Operands PackedOperands(const OpSpec& s, const Attention& a, bool grad) {
  return Packed(a, s.attrs.Int("heads"), grad);
}

}  // namespace

Attention Attention::Of(const Attrs& attrs, const Shape& q, const Shape& k, const Shape& v) {
  const size_t r = q.size();
  Attention a;
  a.heads = NumElements(absl::MakeConstSpan(q).subspan(0, r - 2));
  a.t = q[r - 2];
  a.s = k[r - 2];
  a.d = q[r - 1];
  a.e = v[r - 1];
  a.causal = attrs.Bool("causal");
  a.scale = attrs.Float("scale") > 0 ? attrs.Float("scale") : 1 / std::sqrt(static_cast<double>(a.d));
  return a;
}

Attention PackedAttention(const Attrs& attrs, const Shape& qkv) {
  const int64_t heads = attrs.Int("heads"), d = qkv[2] / 3 / heads;
  const Shape one = {qkv[0] * heads, qkv[1], d};
  return Attention::Of(attrs, one, one, one);
}

void AddAttentionKernels(OpDef& op, bool grad) {
  op.Fast(Split(SeparateSizes, SeparateOperands, grad)).Fast(Vectors(SeparateSizes, SeparateOperands, grad));
}
void AddPackedAttentionKernels(OpDef& op, bool grad) {
  op.Fast(Split(PackedSizes, PackedOperands, grad)).Fast(Vectors(PackedSizes, PackedOperands, grad));
}

}  // namespace mslua
#endif  // HWY_ONCE
