#include "core/ops/support/channels.h"

#include <algorithm>

#include "core/base/parallel_for.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/ops/support/channels.cc"
// foreach_target.h first: it includes this file once for each instruction set.
// clang-format off
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "core/ops/support/simd-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace mslua {
namespace HWY_NAMESPACE {

// Adds one vector's terms to two sums. With d = x - centre:
// statistics: d and d^2; gradient: dy and dy * d.
template <bool kGrad, class T>
HWY_INLINE void AddTerms(const T* x, const T* dy, int64_t at, size_t n, V32 centre, V32& sum0, V32& sum1) {
  V32 d = hn::Sub(LoadN(x + at, n), centre);
  if constexpr (kGrad) {
    const V32 g = LoadN(dy + at, n);
    sum0 = hn::Add(sum0, g);
    sum1 = hn::MulAdd(g, d, sum1);
  } else {
    if (n < hn::Lanes(F32())) d = hn::IfThenElseZero(hn::FirstN(F32(), n), d);
    sum0 = hn::Add(sum0, d);
    sum1 = hn::MulAdd(d, d, sum1);
  }
}

// Rows [begin, end) of [outer, channels]: sums[0, channels) and sums[channels, 2 * channels).
template <bool kGrad, class T>
void ReduceRows(const Channels& v, const T* x, const T* dy, const float* centre, float* sums, int64_t begin,
                int64_t end) {
  const F32 d;
  constexpr int kBlock = 4;  // vectors whose sums stay in registers
  const int64_t c = v.channels, lanes = hn::Lanes(d);
  int64_t k = 0;
  for (; k + kBlock * lanes <= c; k += kBlock * lanes) {
    V32 m[kBlock], s0[kBlock], s1[kBlock];
    for (int b = 0; b < kBlock; ++b) {
      m[b] = Load(centre + k + b * lanes);
      s0[b] = s1[b] = hn::Zero(d);
    }
    for (int64_t r = begin; r < end; ++r) {
      for (int b = 0; b < kBlock; ++b) AddTerms<kGrad>(x, dy, r * c + k + b * lanes, lanes, m[b], s0[b], s1[b]);
    }
    for (int b = 0; b < kBlock; ++b) {
      Store(s0[b], sums + k + b * lanes);
      Store(s1[b], sums + c + k + b * lanes);
    }
  }
  ForEachVector(c - k, [&](int64_t i, size_t n) {
    const V32 m = LoadN(centre + k + i, n);
    V32 s0 = hn::Zero(d), s1 = s0;
    for (int64_t r = begin; r < end; ++r) AddTerms<kGrad>(x, dy, r * c + k + i, n, m, s0, s1);
    StoreN(s0, sums + k + i, n);
    StoreN(s1, sums + c + k + i, n);
  });
}

// Channel k of [outer, channels, inner], inner > 1: its two sums.
template <bool kGrad, class T>
void ReducePlanes(const Channels& v, const T* x, const T* dy, float centre, int64_t k, double* sums) {
  const F32 d;
  const int64_t lanes = hn::Lanes(d);
  const V32 m = hn::Set(d, centre);
  sums[0] = sums[1] = 0;
  for (int64_t o = 0; o < v.outer; ++o) {
    const int64_t at = (o * v.channels + k) * v.inner;
    V32 s0 = hn::Zero(d), s1 = s0, t0 = s0, t1 = s0;
    int64_t i = 0;
    for (; i + 2 * lanes <= v.inner; i += 2 * lanes) {
      AddTerms<kGrad>(x, dy, at + i, lanes, m, s0, s1);
      AddTerms<kGrad>(x, dy, at + i + lanes, lanes, m, t0, t1);
    }
    ForEachVector(v.inner - i, [&](int64_t j, size_t n) { AddTerms<kGrad>(x, dy, at + i + j, n, m, s0, s1); });
    sums[0] += hn::GetLane(hn::SumOfLanes(d, hn::Add(s0, t0)));
    sums[1] += hn::GetLane(hn::SumOfLanes(d, hn::Add(s1, t1)));
  }
}

// result = a * dy + b * (x - centre) + c; without dy the first term is left out.
template <bool kGrad, class T>
HWY_INLINE void MapOne(const T* x, const T* dy, T* result, int64_t at, size_t n, V32 centre, V32 a, V32 b, V32 c) {
  V32 r = hn::MulAdd(hn::Sub(LoadN(x + at, n), centre), b, c);
  if constexpr (kGrad) r = hn::MulAdd(LoadN(dy + at, n), a, r);
  StoreN(r, result + at, n);
}

// Rows [begin, end) of [outer, channels], or when inner > 1 planes [begin, end) of [outer * channels, inner].
// `coefficients` are a, b and c for each channel.
template <bool kGrad, class T>
void Map(const Channels& v, const T* x, const T* dy, T* result, const float* centre, const float* coefficients,
         int64_t begin, int64_t end) {
  const F32 d;
  const float *a = coefficients, *b = a + v.channels, *c = b + v.channels;
  if (v.inner == 1) {
    for (int64_t r = begin; r < end; ++r) {
      ForEachVector(v.channels, [&](int64_t k, size_t n) {
        MapOne<kGrad>(x, dy, result, r * v.channels + k, n, LoadN(centre + k, n), kGrad ? LoadN(a + k, n) : hn::Zero(d),
                      LoadN(b + k, n), LoadN(c + k, n));
      });
    }
    return;
  }
  for (int64_t p = begin; p < end; ++p) {
    const int64_t k = p % v.channels;
    const V32 m = hn::Set(d, centre[k]), va = hn::Set(d, a[k]), vb = hn::Set(d, b[k]), vc = hn::Set(d, c[k]);
    ForEachVector(v.inner,
                  [&](int64_t i, size_t n) { MapOne<kGrad>(x, dy, result, p * v.inner + i, n, m, va, vb, vc); });
  }
}

#define MSLUA_CHANNEL_KERNELS(Suffix, T)                                                                           \
  void ReduceRows##Suffix(bool grad, const Channels& v, const void* x, const void* dy, const float* centre,        \
                          float* sums, int64_t b, int64_t e) {                                                     \
    const T *p = static_cast<const T*>(x), *q = static_cast<const T*>(dy);                                         \
    grad ? ReduceRows<true>(v, p, q, centre, sums, b, e) : ReduceRows<false>(v, p, q, centre, sums, b, e);         \
  }                                                                                                                \
  void ReducePlanes##Suffix(bool grad, const Channels& v, const void* x, const void* dy, float centre, int64_t k,  \
                            double* sums) {                                                                        \
    const T *p = static_cast<const T*>(x), *q = static_cast<const T*>(dy);                                         \
    grad ? ReducePlanes<true>(v, p, q, centre, k, sums) : ReducePlanes<false>(v, p, q, centre, k, sums);           \
  }                                                                                                                \
  void Map##Suffix(bool grad, const Channels& v, const void* x, const void* dy, void* y, const float* centre,      \
                   const float* coefficients, int64_t b, int64_t e) {                                              \
    const T *p = static_cast<const T*>(x), *q = static_cast<const T*>(dy);                                         \
    T* r = static_cast<T*>(y);                                                                                     \
    grad ? Map<true>(v, p, q, r, centre, coefficients, b, e) : Map<false>(v, p, q, r, centre, coefficients, b, e); \
  }
MSLUA_CHANNEL_KERNELS(F32, float)
MSLUA_CHANNEL_KERNELS(BF16, BF16)
#undef MSLUA_CHANNEL_KERNELS

}  // namespace HWY_NAMESPACE
}  // namespace mslua
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mslua {

HWY_EXPORT(ReduceRowsF32);
HWY_EXPORT(ReduceRowsBF16);
HWY_EXPORT(ReducePlanesF32);
HWY_EXPORT(ReducePlanesBF16);
HWY_EXPORT(MapF32);
HWY_EXPORT(MapBF16);

namespace {

constexpr int64_t kGrain = 16 * 1024;  // elements below which one thread does all

const float* Floats(const void* p) { return static_cast<const float*>(p); }

// Statistics: inputs x, shift. Gradient: inputs dy, x, mean, rstd. Two results of [channels].
class ReduceKernel : public Kernel {
 public:
  ReduceKernel(const Channels& v, DType t, bool grad) : v_(v), bf16_(t == DType::kBF16), grad_(grad) {
    // Cut by the sizes alone, so that the sums do not depend on the number of threads.
    if (v_.inner == 1)
      chunks_ =
          std::clamp<int64_t>(v_.elements() / kGrain, 1, std::min<int64_t>(kMaxChunks, std::max<int64_t>(v_.outer, 1)));
  }

  int64_t scratch_bytes() const override { return chunks_ * 2 * v_.channels * static_cast<int64_t>(sizeof(float)); }

  Status Run(const Buffers& buffers) override {
    const void* dy = grad_ ? buffers.inputs[0] : nullptr;
    const void* x = buffers.inputs[grad_ ? 1 : 0];
    const float* centre = Floats(buffers.inputs[grad_ ? 2 : 1]);
    const float* rstd = grad_ ? Floats(buffers.inputs[3]) : nullptr;
    float* result0 = static_cast<float*>(buffers.outputs[0]);
    float* result1 = static_cast<float*>(buffers.outputs[1]);
    const int64_t c = v_.channels;
    if (v_.inner > 1) {
      ParallelFor(c, kGrain / (v_.count() + 1) + 1, [&](int64_t begin, int64_t end) {
        for (int64_t k = begin; k < end; ++k) {
          double sums[2];
          if (bf16_)
            HWY_DYNAMIC_DISPATCH(ReducePlanesBF16)(grad_, v_, x, dy, centre[k], k, sums);
          else
            HWY_DYNAMIC_DISPATCH(ReducePlanesF32)(grad_, v_, x, dy, centre[k], k, sums);
          result0[k] = static_cast<float>(sums[0]);
          result1[k] = static_cast<float>(grad_ ? sums[1] * rstd[k] : sums[1]);
        }
      });
      return absl::OkStatus();
    }
    float* partial = static_cast<float*>(buffers.scratch);
    ParallelFor(chunks_, 1, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        const int64_t from = v_.outer * t / chunks_, to = v_.outer * (t + 1) / chunks_;
        if (bf16_)
          HWY_DYNAMIC_DISPATCH(ReduceRowsBF16)(grad_, v_, x, dy, centre, partial + t * 2 * c, from, to);
        else
          HWY_DYNAMIC_DISPATCH(ReduceRowsF32)(grad_, v_, x, dy, centre, partial + t * 2 * c, from, to);
      }
    });
    for (int64_t k = 0; k < c; ++k) {
      double s0 = 0, s1 = 0;
      for (int64_t t = 0; t < chunks_; ++t) {
        s0 += partial[t * 2 * c + k];
        s1 += partial[t * 2 * c + c + k];
      }
      result0[k] = static_cast<float>(s0);
      result1[k] = static_cast<float>(grad_ ? s1 * rstd[k] : s1);
    }
    return absl::OkStatus();
  }

 private:
  static constexpr int64_t kMaxChunks = 64;
  const Channels v_;
  const bool bf16_, grad_;
  int64_t chunks_ = 0;
};

// Apply: inputs x, mean, rstd, scale, bias. Gradient: dy, x, mean, rstd, scale, dbias, dscale.
class MapKernel : public Kernel {
 public:
  MapKernel(const Channels& v, DType t, bool grad, double count)
      : v_(v), bf16_(t == DType::kBF16), grad_(grad), inverse_(count > 0 ? 1 / count : 0) {}

  int64_t scratch_bytes() const override { return 3 * v_.channels * static_cast<int64_t>(sizeof(float)); }

  Status Run(const Buffers& buffers) override {
    const void* dy = grad_ ? buffers.inputs[0] : nullptr;
    const void* const* in = buffers.inputs + (grad_ ? 1 : 0);
    const void* x = in[0];
    const float *mean = Floats(in[1]), *rstd = Floats(in[2]), *scale = Floats(in[3]), *bias = Floats(in[4]);
    const int64_t channels = v_.channels;
    float *a = static_cast<float*>(buffers.scratch), *b = a + channels, *c = b + channels;
    for (int64_t k = 0; k < channels; ++k) {
      a[k] = rstd[k] * scale[k];
      if (grad_) {
        const float dbias = bias[k], dscale = Floats(in[5])[k];
        b[k] = -a[k] * rstd[k] * dscale * inverse_;
        c[k] = -a[k] * dbias * inverse_;
      } else {
        b[k] = a[k];
        c[k] = bias[k];
      }
    }
    const int64_t items = v_.inner == 1 ? v_.outer : v_.outer * channels;
    const int64_t each = v_.inner == 1 ? channels : v_.inner;
    ParallelFor(items, kGrain / (each + 1) + 1, [&](int64_t begin, int64_t end) {
      if (bf16_)
        HWY_DYNAMIC_DISPATCH(MapBF16)(grad_, v_, x, dy, buffers.outputs[0], mean, a, begin, end);
      else
        HWY_DYNAMIC_DISPATCH(MapF32)(grad_, v_, x, dy, buffers.outputs[0], mean, a, begin, end);
    });
    return absl::OkStatus();
  }

 private:
  const Channels v_;
  const bool bf16_, grad_;
  const float inverse_;
};

// `x`: the operand that is the images; the one after it holds statistics.
std::function<bool(const OpSpec&)> Supports(int x) {
  return [x](const OpSpec& s) {
    const DType t = s.inputs[x].dtype;
    return (t == DType::kF32 || t == DType::kBF16) && s.inputs[x + 1].dtype == DType::kF32;
  };
}

FastKernel Reduce(bool grad) {
  return {"highway", Supports(grad ? 1 : 0), [grad](const OpSpec& s) -> StatusOr<std::unique_ptr<Kernel>> {
            return std::make_unique<ReduceKernel>(Channels::Of(s.attrs, s.inputs[0].shape), s.inputs[0].dtype, grad);
          }};
}

FastKernel MapWith(bool grad) {
  return {"highway", Supports(grad ? 1 : 0), [grad](const OpSpec& s) -> StatusOr<std::unique_ptr<Kernel>> {
            return std::make_unique<MapKernel>(Channels::Of(s.attrs, s.inputs[0].shape), s.inputs[0].dtype, grad,
                                               static_cast<double>(s.attrs.Int("count")));
          }};
}

}  // namespace

Channels Channels::Of(const Attrs& attrs, const Shape& shape) {
  const auto dims = absl::MakeConstSpan(shape);
  if (attrs.Str("data_format") == "NHWC") return {NumElements(dims.subspan(0, dims.size() - 1)), shape.back(), 1};
  return {shape[0], shape[1], NumElements(dims.subspan(2))};
}

FastKernel HighwayBatchNormStats() { return Reduce(false); }
FastKernel HighwayBatchNormApply() { return MapWith(false); }
FastKernel HighwayBatchNormGradStats() { return Reduce(true); }
FastKernel HighwayBatchNormGradApply() { return MapWith(true); }

}  // namespace mslua
#endif  // HWY_ONCE
