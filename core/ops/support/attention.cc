#include "core/ops/support/attention.h"

#include <algorithm>
#include <cmath>

#include "core/base/parallel_for.h"
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

HWY_EXPORT(OnlineSoftmax);
HWY_EXPORT(Scale);
HWY_EXPORT(ScoreGradient);
HWY_EXPORT(ToF32);
HWY_EXPORT(ToBF16);

namespace {

constexpr int64_t kQueries = 32, kKeys = 128;  // a tile of scores: 16 KiB

// [rows, columns] to [columns, rows].
void Transpose(const float* from, float* to, int64_t rows, int64_t columns) {
  for (int64_t r0 = 0; r0 < rows; r0 += 16) {
    const int64_t r1 = std::min(rows, r0 + 16);
    for (int64_t c = 0; c < columns; ++c) {
      for (int64_t r = r0; r < r1; ++r) to[c * rows + r] = from[r * columns + c];
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

// Head `h` of a stack of matrices of n elements, as f32: its own memory, or a copy in `space`.
const float* HeadAsF32(bool bf16, const void* stack, int64_t h, int64_t n, float* space) {
  if (!bf16) return static_cast<const float*>(stack) + h * n;
  HWY_DYNAMIC_DISPATCH(ToF32)(static_cast<const BF16*>(stack) + h * n, space, n);
  return space;
}
// Where f32 results for `count` elements at `at` of a tensor are made; StoreResult brings 16-bit ones home.
float* ResultSpace(bool bf16, void* tensor, int64_t at, float* space) {
  return bf16 ? space : static_cast<float*>(tensor) + at;
}
void StoreResult(bool bf16, const float* from, void* tensor, int64_t at, int64_t count) {
  if (bf16) HWY_DYNAMIC_DISPATCH(ToBF16)(from, static_cast<BF16*>(tensor) + at, count);
}

// Scores of queries [i, i + m) and keys [j, j + n), n <= kKeys: rows of kKeys floats.
void Scores(const Attention& a, const float* q, const float* kt, int64_t i, int64_t m, int64_t j, int64_t n,
            float* scores) {
  SmallProduct p{m, n, a.d, a.d, 1, a.s, kKeys};
  p.scale = static_cast<float>(a.scale);
  SmallMatmul(p, q + i * a.d, kt + j, scores);
}

class AttentionKernel : public Kernel {
 public:
  AttentionKernel(const Attention& a, DType t, bool grad)
      : a_(a), bf16_(t == DType::kBF16), grad_(grad), slots_(std::min<int64_t>(ComputeThreads(), a.heads)) {
    Floats space(nullptr);
    Lay(space);
    slot_floats_ = space.taken();
  }

  int64_t scratch_bytes() const override { return slots_ * slot_floats_ * static_cast<int64_t>(sizeof(float)); }

  Status Run(const Buffers& b) override {
    ParallelFor(slots_, 1, [&](int64_t begin, int64_t end) {
      for (int64_t slot = begin; slot < end; ++slot) {
        Floats space(static_cast<float*>(b.scratch) + slot * slot_floats_);
        const Space at = Lay(space);
        for (int64_t h = a_.heads * slot / slots_; h < a_.heads * (slot + 1) / slots_; ++h) {
          if (grad_)
            Backward(b, h, at);
          else
            Forward(b, h, at);
        }
      }
    });
    return absl::OkStatus();
  }

 private:
  // Scratch memory of one thread.
  struct Space {
    float *q, *k, *v, *dy;    // f32 copies of 16-bit operands
    float *kt, *vt;           // transposed
    float *scores, *dscores;  // tiles
    float *result, *dk, *dv;  // f32 results: of a tile of queries forward, of a head backward
  };
  Space Lay(Floats& f) const {
    const auto when = [&](bool wanted, int64_t n) { return f.Take(wanted ? n : 0); };
    Space s;
    s.q = when(bf16_, a_.t * a_.d);
    s.k = when(bf16_, a_.s * a_.d);
    s.v = when(bf16_, a_.s * a_.e);
    s.dy = when(bf16_ && grad_, a_.t * a_.e);
    s.kt = f.Take(a_.s * a_.d);
    s.vt = when(grad_, a_.s * a_.e);
    s.scores = f.Take(kQueries * kKeys);
    s.dscores = when(grad_, kQueries * kKeys);
    s.result = when(bf16_, grad_ ? a_.t * a_.d : kQueries * a_.e);
    s.dk = when(bf16_ && grad_, a_.s * a_.d);
    s.dv = when(bf16_ && grad_, a_.s * a_.e);
    return s;
  }

  // Inputs q, k, v; outputs y, lse.
  void Forward(const Buffers& b, int64_t h, const Space& at) const {
    const float* q = HeadAsF32(bf16_, b.inputs[0], h, a_.t * a_.d, at.q);
    const float* k = HeadAsF32(bf16_, b.inputs[1], h, a_.s * a_.d, at.k);
    const float* v = HeadAsF32(bf16_, b.inputs[2], h, a_.s * a_.e, at.v);
    Transpose(k, at.kt, a_.s, a_.d);
    float* lse = static_cast<float*>(b.outputs[1]) + h * a_.t;
    for (int64_t i = 0; i < a_.t; i += kQueries) {
      const int64_t m = std::min(kQueries, a_.t - i), first = (h * a_.t + i) * a_.e;
      float* y = ResultSpace(bf16_, b.outputs[0], first, at.result);
      float max[kQueries], sum[kQueries];
      std::fill(max, max + m, -INFINITY);
      std::fill(sum, sum + m, 0.0f);
      for (int64_t j = 0; j < a_.Seen(i + m - 1); j += kKeys) {
        const int64_t n = std::min(kKeys, a_.s - j);
        Scores(a_, q, at.kt, i, m, j, n, at.scores);
        for (int64_t r = 0; r < m; ++r) {
          float* row = at.scores + r * kKeys;
          const int64_t seen = std::clamp<int64_t>(a_.Seen(i + r) - j, 0, n);
          std::fill(row + seen, row + n, 0.0f);
          if (seen == 0) continue;
          const float shrink = HWY_DYNAMIC_DISPATCH(OnlineSoftmax)(row, seen, &max[r], &sum[r]);
          if (j > 0) HWY_DYNAMIC_DISPATCH(Scale)(y + r * a_.e, a_.e, shrink);
        }
        SmallMatmul(SmallProduct{m, a_.e, n, kKeys, 1, a_.e, a_.e, j > 0}, at.scores, v + j * a_.e, y);
      }
      for (int64_t r = 0; r < m; ++r) {
        HWY_DYNAMIC_DISPATCH(Scale)(y + r * a_.e, a_.e, 1 / sum[r]);
        lse[i + r] = max[r] + std::log(sum[r]);
      }
      StoreResult(bf16_, y, b.outputs[0], first, m * a_.e);
    }
  }

  // Inputs q, k, v, lse, delta, dy; outputs dq, dk, dv.
  void Backward(const Buffers& b, int64_t h, const Space& at) const {
    const float* q = HeadAsF32(bf16_, b.inputs[0], h, a_.t * a_.d, at.q);
    const float* k = HeadAsF32(bf16_, b.inputs[1], h, a_.s * a_.d, at.k);
    const float* v = HeadAsF32(bf16_, b.inputs[2], h, a_.s * a_.e, at.v);
    const float* lse = static_cast<const float*>(b.inputs[3]) + h * a_.t;
    const float* delta = static_cast<const float*>(b.inputs[4]) + h * a_.t;
    const float* dy = HeadAsF32(bf16_, b.inputs[5], h, a_.t * a_.e, at.dy);
    float* dq = ResultSpace(bf16_, b.outputs[0], h * a_.t * a_.d, at.result);
    float* dk = ResultSpace(bf16_, b.outputs[1], h * a_.s * a_.d, at.dk);
    float* dv = ResultSpace(bf16_, b.outputs[2], h * a_.s * a_.e, at.dv);
    Transpose(k, at.kt, a_.s, a_.d);
    Transpose(v, at.vt, a_.s, a_.e);
    std::fill(dk, dk + a_.s * a_.d, 0.0f);
    std::fill(dv, dv + a_.s * a_.e, 0.0f);
    for (int64_t i = 0; i < a_.t; i += kQueries) {
      const int64_t m = std::min(kQueries, a_.t - i);
      for (int64_t j = 0; j < a_.Seen(i + m - 1); j += kKeys) {
        const int64_t n = std::min(kKeys, a_.s - j);
        Scores(a_, q, at.kt, i, m, j, n, at.scores);
        SmallMatmul(SmallProduct{m, n, a_.e, a_.e, 1, a_.s, kKeys}, dy + i * a_.e, at.vt + j, at.dscores);
        for (int64_t r = 0; r < m; ++r) {
          float *p = at.scores + r * kKeys, *dp = at.dscores + r * kKeys;
          const int64_t seen = std::clamp<int64_t>(a_.Seen(i + r) - j, 0, n);
          HWY_DYNAMIC_DISPATCH(ScoreGradient)(p, dp, seen, lse[i + r], delta[i + r], static_cast<float>(a_.scale));
          std::fill(p + seen, p + n, 0.0f);
          std::fill(dp + seen, dp + n, 0.0f);
        }
        SmallMatmul(SmallProduct{n, a_.e, m, 1, kKeys, a_.e, a_.e, true}, at.scores, dy + i * a_.e, dv + j * a_.e);
        SmallMatmul(SmallProduct{n, a_.d, m, 1, kKeys, a_.d, a_.d, true}, at.dscores, q + i * a_.d, dk + j * a_.d);
        SmallMatmul(SmallProduct{m, a_.d, n, kKeys, 1, a_.d, a_.d, j > 0}, at.dscores, k + j * a_.d, dq + i * a_.d);
      }
    }
    StoreResult(bf16_, dq, b.outputs[0], h * a_.t * a_.d, a_.t * a_.d);
    StoreResult(bf16_, dk, b.outputs[1], h * a_.s * a_.d, a_.s * a_.d);
    StoreResult(bf16_, dv, b.outputs[2], h * a_.s * a_.e, a_.s * a_.e);
  }

  const Attention a_;
  const bool bf16_, grad_;
  const int64_t slots_;
  int64_t slot_floats_ = 0;
};

FastKernel Tiled(bool grad) {
  return {
      "highway",
      [](const OpSpec& s) {
        return (s.inputs[0].dtype == DType::kF32 || s.inputs[0].dtype == DType::kBF16) && s.outputs[0].elements() > 0;
      },
      [grad](const OpSpec& s) -> StatusOr<std::unique_ptr<Kernel>> {
        return std::make_unique<AttentionKernel>(
            Attention::Of(s.attrs, s.inputs[0].shape, s.inputs[1].shape, s.inputs[2].shape), s.inputs[0].dtype, grad);
      }};
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

FastKernel TiledAttention() { return Tiled(false); }
FastKernel TiledAttentionGrad() { return Tiled(true); }

}  // namespace mslua
#endif  // HWY_ONCE
