#include "core/kernels/simd/channels.h"

#include <algorithm>
#include <atomic>
#include <cmath>

#include "core/base/parallel_for.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/kernels/simd/channels.cc"
// foreach_target.h first: it includes this file once for each instruction set.
// clang-format off
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "core/kernels/simd/simd-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace mslua {
#ifndef MSLUA_CHANNEL_TERMS
#define MSLUA_CHANNEL_TERMS
namespace {
// What a kernel is about: the images themselves, their gradient, or their gradient through a relu that follows.
enum class Terms { kStatistics, kGradient, kReluGradient };
// Vectors of [channels]: what is taken from x, and of a relu's operand (x - centre) * slope + bias.
struct ChannelVectors {
  const float *centre, *slope = nullptr, *bias = nullptr;
};
}  // namespace
#endif
namespace HWY_NAMESPACE {

// dy where a relu over y = (x - mean) * a + bias lets it through; d is x - mean.
HWY_INLINE V32 Through(V32 dy, V32 d, V32 a, V32 bias) {
  return hn::IfThenElseZero(hn::Gt(hn::MulAdd(d, a, bias), hn::Zero(F32())), dy);
}

// The vectors of [channels] that a reduction reads; slope and bias for a relu's gradient only.
struct Vectors {
  V32 centre, slope, bias;
};
template <Terms kTerms>
HWY_INLINE Vectors LoadVectors(const ChannelVectors& v, int64_t k, size_t n) {
  if constexpr (kTerms == Terms::kReluGradient)
    return {LoadN(v.centre + k, n), LoadN(v.slope + k, n), LoadN(v.bias + k, n)};
  const V32 m = LoadN(v.centre + k, n);
  return {m, m, m};
}
template <Terms kTerms>
HWY_INLINE Vectors SetVectors(const ChannelVectors& v, int64_t k) {
  const F32 d;
  const V32 m = hn::Set(d, v.centre[k]);
  if constexpr (kTerms == Terms::kReluGradient) return {m, hn::Set(d, v.slope[k]), hn::Set(d, v.bias[k])};
  return {m, m, m};
}

// Adds one vector's terms to two sums. With d = x - centre:
// statistics: d and d^2; gradient: dy and dy * d.
template <Terms kTerms, class T>
HWY_INLINE void AddTerms(const T* x, const T* dy, int64_t at, size_t n, const Vectors& v, V32& sum0, V32& sum1) {
  V32 d = hn::Sub(LoadN(x + at, n), v.centre);
  if constexpr (kTerms == Terms::kStatistics) {
    if (n < hn::Lanes(F32())) d = hn::IfThenElseZero(hn::FirstN(F32(), n), d);
    sum0 = hn::Add(sum0, d);
    sum1 = hn::MulAdd(d, d, sum1);
  } else {
    V32 g = LoadN(dy + at, n);
    if constexpr (kTerms == Terms::kReluGradient) g = Through(g, d, v.slope, v.bias);
    sum0 = hn::Add(sum0, g);
    sum1 = hn::MulAdd(g, d, sum1);
  }
}

// Adds rows [begin, end) of [outer, channels] to sums[0, channels) and sums[channels, 2 * channels).
template <Terms kTerms, class T>
HWY_INLINE void AddRows(const Channels& v, const T* x, const T* dy, const ChannelVectors& vectors, float* sums,
                        int64_t begin, int64_t end) {
  constexpr int kBlock = 4;  // vectors whose sums stay in registers
  const int64_t c = v.channels, lanes = hn::Lanes(F32());
  int64_t k = 0;
  for (; k + kBlock * lanes <= c; k += kBlock * lanes) {
    Vectors m[kBlock];
    V32 s0[kBlock], s1[kBlock];
    for (int b = 0; b < kBlock; ++b) {
      m[b] = LoadVectors<kTerms>(vectors, k + b * lanes, lanes);
      s0[b] = Load(sums + k + b * lanes);
      s1[b] = Load(sums + c + k + b * lanes);
    }
    for (int64_t r = begin; r < end; ++r) {
      for (int b = 0; b < kBlock; ++b) AddTerms<kTerms>(x, dy, r * c + k + b * lanes, lanes, m[b], s0[b], s1[b]);
    }
    for (int b = 0; b < kBlock; ++b) {
      Store(s0[b], sums + k + b * lanes);
      Store(s1[b], sums + c + k + b * lanes);
    }
  }
  ForEachVector(c - k, [&](int64_t i, size_t n) {
    const Vectors m = LoadVectors<kTerms>(vectors, k + i, n);
    V32 s0 = LoadN(sums + k + i, n), s1 = LoadN(sums + c + k + i, n);
    for (int64_t r = begin; r < end; ++r) AddTerms<kTerms>(x, dy, r * c + k + i, n, m, s0, s1);
    StoreN(s0, sums + k + i, n);
    StoreN(s1, sums + c + k + i, n);
  });
}

// Rows [begin, end) of [outer, channels]: sums[0, channels) and sums[channels, 2 * channels). A few rows at a time, so
// that memory is read in order while the sums of some channels stay in registers.
template <Terms kTerms, class T>
void ReduceRows(const Channels& v, const T* x, const T* dy, const ChannelVectors& vectors, float* sums, int64_t begin,
                int64_t end) {
  constexpr int64_t kBytes = 16 << 10;
  const int64_t rows = std::max<int64_t>(4, kBytes / (v.channels * static_cast<int64_t>(sizeof(T)) + 1));
  std::fill_n(sums, 2 * v.channels, 0.0f);
  for (int64_t r = begin; r < end; r += rows) AddRows<kTerms>(v, x, dy, vectors, sums, r, std::min(end, r + rows));
}

// Channel k of [outer, channels, inner], inner > 1: its two sums.
template <Terms kTerms, class T>
void ReducePlanes(const Channels& v, const T* x, const T* dy, const ChannelVectors& vectors, int64_t k, double* sums) {
  const F32 d;
  const int64_t lanes = hn::Lanes(d);
  const Vectors m = SetVectors<kTerms>(vectors, k);
  sums[0] = sums[1] = 0;
  for (int64_t o = 0; o < v.outer; ++o) {
    const int64_t at = (o * v.channels + k) * v.inner;
    V32 s0 = hn::Zero(d), s1 = s0, t0 = s0, t1 = s0;
    int64_t i = 0;
    for (; i + 2 * lanes <= v.inner; i += 2 * lanes) {
      AddTerms<kTerms>(x, dy, at + i, lanes, m, s0, s1);
      AddTerms<kTerms>(x, dy, at + i + lanes, lanes, m, t0, t1);
    }
    ForEachVector(v.inner - i, [&](int64_t j, size_t n) { AddTerms<kTerms>(x, dy, at + i + j, n, m, s0, s1); });
    sums[0] += hn::GetLane(hn::SumOfLanes(d, hn::Add(s0, t0)));
    sums[1] += hn::GetLane(hn::SumOfLanes(d, hn::Add(s1, t1)));
  }
}

// result = a * dy + b * (x - centre) + c; without dy the first term is left out. `a` is the slope of a relu's operand.
template <Terms kTerms, class T>
HWY_INLINE void MapOne(const T* x, const T* dy, T* result, int64_t at, size_t n, V32 centre, V32 a, V32 b, V32 c,
                       V32 bias) {
  const V32 d = hn::Sub(LoadN(x + at, n), centre);
  V32 r = hn::MulAdd(d, b, c);
  if constexpr (kTerms != Terms::kStatistics) {
    V32 g = LoadN(dy + at, n);
    if constexpr (kTerms == Terms::kReluGradient) g = Through(g, d, a, bias);
    r = hn::MulAdd(g, a, r);
  }
  StoreN(r, result + at, n);
}

// Rows [begin, end) of [outer, channels], or when inner > 1 planes [begin, end) of [outer * channels, inner].
// `coefficients` are a, b and c for each channel.
template <Terms kTerms, class T>
void Map(const Channels& v, const T* x, const T* dy, T* result, const ChannelVectors& vectors,
         const float* coefficients, int64_t begin, int64_t end) {
  const F32 d;
  constexpr bool kGrad = kTerms != Terms::kStatistics, kRelu = kTerms == Terms::kReluGradient;
  const float *centre = vectors.centre, *bias = vectors.bias;
  const float *a = coefficients, *b = a + v.channels, *c = b + v.channels;
  if (v.inner == 1) {
    for (int64_t r = begin; r < end; ++r) {
      ForEachVector(v.channels, [&](int64_t k, size_t n) {
        MapOne<kTerms>(x, dy, result, r * v.channels + k, n, LoadN(centre + k, n),
                       kGrad ? LoadN(a + k, n) : hn::Zero(d), LoadN(b + k, n), LoadN(c + k, n),
                       kRelu ? LoadN(bias + k, n) : hn::Zero(d));
      });
    }
    return;
  }
  for (int64_t p = begin; p < end; ++p) {
    const int64_t k = p % v.channels;
    const V32 m = hn::Set(d, centre[k]), va = hn::Set(d, a[k]), vb = hn::Set(d, b[k]), vc = hn::Set(d, c[k]),
              vd = hn::Set(d, kRelu ? bias[k] : 0.0f);
    ForEachVector(v.inner,
                  [&](int64_t i, size_t n) { MapOne<kTerms>(x, dy, result, p * v.inner + i, n, m, va, vb, vc, vd); });
  }
}

// f with the terms as a template argument.
template <class F>
HWY_INLINE void WithTerms(Terms terms, F f) {
  if (terms == Terms::kStatistics) return f(std::integral_constant<Terms, Terms::kStatistics>());
  if (terms == Terms::kGradient) return f(std::integral_constant<Terms, Terms::kGradient>());
  f(std::integral_constant<Terms, Terms::kReluGradient>());
}

#define MSLUA_CHANNEL_KERNELS(Suffix, T)                                                                            \
  void ReduceRows##Suffix(Terms terms, const Channels& v, const void* x, const void* dy, const ChannelVectors& m,   \
                          float* sums, int64_t b, int64_t e) {                                                      \
    const T *p = static_cast<const T*>(x), *q = static_cast<const T*>(dy);                                          \
    WithTerms(terms, [&](auto t) { ReduceRows<decltype(t)::value>(v, p, q, m, sums, b, e); });                      \
  }                                                                                                                 \
  void ReducePlanes##Suffix(Terms terms, const Channels& v, const void* x, const void* dy, const ChannelVectors& m, \
                            int64_t k, double* sums) {                                                              \
    const T *p = static_cast<const T*>(x), *q = static_cast<const T*>(dy);                                          \
    WithTerms(terms, [&](auto t) { ReducePlanes<decltype(t)::value>(v, p, q, m, k, sums); });                       \
  }                                                                                                                 \
  void Map##Suffix(Terms terms, const Channels& v, const void* x, const void* dy, void* y, const ChannelVectors& m, \
                   const float* coefficients, int64_t b, int64_t e) {                                               \
    const T *p = static_cast<const T*>(x), *q = static_cast<const T*>(dy);                                          \
    T* r = static_cast<T*>(y);                                                                                      \
    WithTerms(terms, [&](auto t) { Map<decltype(t)::value>(v, p, q, r, m, coefficients, b, e); });                  \
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

// The sums over `count` elements of x - centre and of its square.
struct Moments {
  double sum = 0, squares = 0;

  // Whether the mean is so far from the centre (over four standard deviations) that f32 squares lose digits of the
  // variance.
  bool Far(double count) const {
    const double offset = sum / count;
    return offset * offset > 16 * (squares / count - offset * offset);
  }
  // The sums about a point that lies `distance` below the centre.
  Moments About(double distance, double count) const {
    return {sum + distance * count, squares + distance * (2 * sum + distance * count)};
  }
};

// Statistics: inputs x, shift; f64 results. Gradient: inputs dy, x, mean, rstd, and through a relu scale and bias; f32
// results. Two results of [channels].
class ReduceKernel : public Kernel {
 public:
  ReduceKernel(const Channels& v, DType t, Terms terms) : v_(v), bf16_(t == DType::kBF16), terms_(terms) {
    // Split by the sizes alone, so that the sums do not depend on the number of threads.
    if (v_.inner == 1)
      chunks_ =
          std::clamp<int64_t>(v_.elements() / kGrain, 1, std::min<int64_t>(kMaxChunks, std::max<int64_t>(v_.outer, 1)));
    const int64_t samples = std::min(v_.count(), kSamples);
    for (int64_t s = 0; s < samples; ++s) {
      const int64_t i = v_.count() * s / samples;
      samples_.push_back(i / v_.inner * v_.channels * v_.inner + i % v_.inner);
    }
  }

  // The partial sums, then the slopes of a relu's gradient, or the centres of statistics.
  int64_t scratch_bytes() const override {
    return (2 * chunks_ + 1) * v_.channels * static_cast<int64_t>(sizeof(float));
  }

  Status Run(const Buffers& buffers) override {
    const bool grad = terms_ != Terms::kStatistics;
    const Images images{buffers.inputs[grad ? 1 : 0], grad ? buffers.inputs[0] : nullptr};
    float* partial = static_cast<float*>(buffers.scratch);
    float* vector = partial + 2 * chunks_ * v_.channels;
    if (!grad) {
      Statistics(images, Floats(buffers.inputs[1]), partial, vector, buffers);
      return absl::OkStatus();
    }
    const float* rstd = Floats(buffers.inputs[3]);
    ChannelVectors vectors{Floats(buffers.inputs[2])};
    if (terms_ == Terms::kReluGradient) {
      for (int64_t k = 0; k < v_.channels; ++k) vector[k] = rstd[k] * Floats(buffers.inputs[4])[k];
      vectors.slope = vector;
      vectors.bias = Floats(buffers.inputs[5]);
    }
    float *dbias = static_cast<float*>(buffers.outputs[0]), *dscale = static_cast<float*>(buffers.outputs[1]);
    Sums(images, vectors, partial, [&](int64_t k, double sum0, double sum1) {
      dbias[k] = static_cast<float>(sum0);
      dscale[k] = static_cast<float>(sum1 * rstd[k]);
    });
    return absl::OkStatus();
  }

 private:
  struct Images {
    const void *x, *dy;
  };

  // Takes f32 sums about the mean of a few elements, and once more about the mean of all where that is far off.
  void Statistics(const Images& images, const float* shift, float* partial, float* centre, const Buffers& buffers) {
    double *sum = static_cast<double*>(buffers.outputs[0]), *squares = static_cast<double*>(buffers.outputs[1]);
    const double count = static_cast<double>(v_.count());
    ParallelFor(v_.channels, kGrain / kSamples, [&](int64_t begin, int64_t end) {
      for (int64_t k = begin; k < end; ++k) {
        const float mean = bf16_ ? SampleMean<BF16>(images.x, k) : SampleMean<float>(images.x, k);
        centre[k] = std::isfinite(mean) ? mean : shift[k];
      }
    });
    const auto about_shift = [&](int64_t k, const Moments& about_centre) {
      const Moments m = about_centre.About(static_cast<double>(centre[k]) - shift[k], count);
      sum[k] = m.sum;
      squares[k] = m.squares;
    };
    std::atomic<bool> far = false;
    Sums(images, {centre}, partial, [&](int64_t k, double sum0, double sum1) {
      const Moments m{sum0, sum1};
      about_shift(k, m);
      if (!m.Far(count)) return;
      centre[k] += static_cast<float>(m.sum / count);
      far = true;
    });
    if (far)
      Sums(images, {centre}, partial, [&](int64_t k, double sum0, double sum1) { about_shift(k, {sum0, sum1}); });
  }

  // The mean of the samples of channel `k`.
  template <class T>
  float SampleMean(const void* images, int64_t k) const {
    const T* x = static_cast<const T*>(images) + k * v_.inner;
    float mean = 0;
    for (const int64_t at : samples_) mean += static_cast<float>(x[at]) / samples_.size();
    return mean;
  }

  // Calls result(channel, sum0, sum1) for each channel, from several threads.
  template <class F>
  void Sums(const Images& images, const ChannelVectors& vectors, float* partial, const F& result) {
    const int64_t c = v_.channels;
    if (v_.inner > 1) {
      ParallelFor(c, kGrain / (v_.count() + 1) + 1, [&](int64_t begin, int64_t end) {
        for (int64_t k = begin; k < end; ++k) {
          double sums[2];
          if (bf16_)
            HWY_DYNAMIC_DISPATCH(ReducePlanesBF16)(terms_, v_, images.x, images.dy, vectors, k, sums);
          else
            HWY_DYNAMIC_DISPATCH(ReducePlanesF32)(terms_, v_, images.x, images.dy, vectors, k, sums);
          result(k, sums[0], sums[1]);
        }
      });
      return;
    }
    ParallelFor(chunks_, 1, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        const int64_t from = v_.outer * t / chunks_, to = v_.outer * (t + 1) / chunks_;
        float* sums = partial + t * 2 * c;
        if (bf16_)
          HWY_DYNAMIC_DISPATCH(ReduceRowsBF16)(terms_, v_, images.x, images.dy, vectors, sums, from, to);
        else
          HWY_DYNAMIC_DISPATCH(ReduceRowsF32)(terms_, v_, images.x, images.dy, vectors, sums, from, to);
      }
    });
    for (int64_t k = 0; k < c; ++k) {
      double s0 = 0, s1 = 0;
      for (int64_t t = 0; t < chunks_; ++t) {
        s0 += partial[t * 2 * c + k];
        s1 += partial[t * 2 * c + c + k];
      }
      result(k, s0, s1);
    }
  }

  static constexpr int64_t kMaxChunks = 64, kSamples = 8;
  const Channels v_;
  const bool bf16_;
  const Terms terms_;
  int64_t chunks_ = 0;
  std::vector<int64_t> samples_;  // a few elements of the first channel, evenly apart
};

// Apply: inputs x, mean, rstd, scale, bias. Gradient: dy, x, mean, rstd, scale, through a relu bias, then dbias and
// dscale.
class MapKernel : public Kernel {
 public:
  MapKernel(const Channels& v, DType t, Terms terms, double count)
      : v_(v), bf16_(t == DType::kBF16), terms_(terms), inverse_(count > 0 ? 1 / count : 0) {}

  int64_t scratch_bytes() const override { return 3 * v_.channels * static_cast<int64_t>(sizeof(float)); }

  Status Run(const Buffers& buffers) override {
    const bool grad = terms_ != Terms::kStatistics, relu = terms_ == Terms::kReluGradient;
    const void* dy = grad ? buffers.inputs[0] : nullptr;
    const void* const* in = buffers.inputs + (grad ? 1 : 0);
    const void* x = in[0];
    const float *rstd = Floats(in[2]), *scale = Floats(in[3]);
    const int64_t channels = v_.channels;
    float *a = static_cast<float*>(buffers.scratch), *b = a + channels, *c = b + channels;
    for (int64_t k = 0; k < channels; ++k) {
      a[k] = rstd[k] * scale[k];
      if (grad) {
        const float dbias = Floats(in[relu ? 5 : 4])[k], dscale = Floats(in[relu ? 6 : 5])[k];
        b[k] = -a[k] * rstd[k] * dscale * inverse_;
        c[k] = -a[k] * dbias * inverse_;
      } else {
        b[k] = a[k];
        c[k] = Floats(in[4])[k];
      }
    }
    const ChannelVectors vectors{Floats(in[1]), a, Floats(in[4])};
    const int64_t items = v_.inner == 1 ? v_.outer : v_.outer * channels;
    const int64_t each = v_.inner == 1 ? channels : v_.inner;
    ParallelFor(items, kGrain / (each + 1) + 1, [&](int64_t begin, int64_t end) {
      if (bf16_)
        HWY_DYNAMIC_DISPATCH(MapBF16)(terms_, v_, x, dy, buffers.outputs[0], vectors, a, begin, end);
      else
        HWY_DYNAMIC_DISPATCH(MapF32)(terms_, v_, x, dy, buffers.outputs[0], vectors, a, begin, end);
    });
    return absl::OkStatus();
  }

 private:
  const Channels v_;
  const bool bf16_;
  const Terms terms_;
  const float inverse_;
};

// `x`: the operand that is the images; the one after it holds statistics.
std::function<bool(const OpSpec&)> Supports(int x) {
  return [x](const OpSpec& s) {
    const DType t = s.inputs[x].dtype;
    return (t == DType::kF32 || t == DType::kBF16) && s.inputs[x + 1].dtype == DType::kF32;
  };
}

FastKernel Reduce(Terms terms) {
  return {"highway", Supports(terms == Terms::kStatistics ? 0 : 1),
          [terms](const OpSpec& s) -> StatusOr<std::unique_ptr<Kernel>> {
            return std::make_unique<ReduceKernel>(Channels::Of(s.attrs, s.inputs[0].shape), s.inputs[0].dtype, terms);
          }};
}

FastKernel MapWith(Terms terms) {
  return {"highway", Supports(terms == Terms::kStatistics ? 0 : 1),
          [terms](const OpSpec& s) -> StatusOr<std::unique_ptr<Kernel>> {
            return std::make_unique<MapKernel>(Channels::Of(s.attrs, s.inputs[0].shape), s.inputs[0].dtype, terms,
                                               static_cast<double>(s.attrs.Int("count")));
          }};
}

}  // namespace

Channels Channels::Of(const Attrs& attrs, const Shape& shape) {
  const auto dims = absl::MakeConstSpan(shape);
  if (attrs.Str("data_format") == "NHWC") return {NumElements(dims.subspan(0, dims.size() - 1)), shape.back(), 1};
  return {shape[0], shape[1], NumElements(dims.subspan(2))};
}

FastKernel HighwayBatchNormStats() { return Reduce(Terms::kStatistics); }
FastKernel HighwayBatchNormApply() { return MapWith(Terms::kStatistics); }
FastKernel HighwayBatchNormGradStats(bool relu) { return Reduce(relu ? Terms::kReluGradient : Terms::kGradient); }
FastKernel HighwayBatchNormGradApply(bool relu) { return MapWith(relu ? Terms::kReluGradient : Terms::kGradient); }

}  // namespace mslua
#endif  // HWY_ONCE
