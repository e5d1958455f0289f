// group_norm_apply and group_norm_grad over Highway. A group of a sample is read from memory once: what follows the
// first pass over it finds it in the cache.
#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>

#include "core/base/parallel_for.h"
#include "core/op/op_def.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/ops/group_norm_highway.cc"
// foreach_target.h first: it includes this file once for each instruction set.
// clang-format off
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "core/kernels/simd/simd-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace mslua {
#ifndef MSLUA_GROUP_NORM_TYPES
#define MSLUA_GROUP_NORM_TYPES
namespace {

// What is added up: x; (x - mean)^2; dy and dy * (x - mean).
enum class Terms { kSum, kSquares, kGradient };

// Some groups of one sample. Where a channel has few elements side by side they are seen as `lines` rows of `width`
// elements, `repeat` of each channel, `stride` from one row to the next; else repeat is 0, and each channel is a plane
// of `width` elements.
struct Block {
  int64_t channels, group_channels;
  int64_t lines, width, stride, repeat;
  // A row of coefficients is that of `pattern` elements: several rows where those fill vectors together.
  int64_t pattern;
};

// Operands of one block: images from its first element on, vectors from its first channel or group on.
struct ForwardCall {
  const void* x;
  const float *scale, *bias;
  void* y;
  float *mean, *rstd;
};
struct BackwardCall {
  const void *dy, *x;
  const float *mean, *rstd, *scale;
  void* dx;
  float *dscale, *dbias;
};

// Memory of a thread: pattern elements each; sums of channels.
struct Rows {
  float *sum0, *sum1, *mean, *a, *b, *c;
  double *channel0, *channel1;
};

}  // namespace
#endif
namespace HWY_NAMESPACE {

// Sums in f32 go over to f64 after so many terms.
constexpr int64_t kTerms = 1024;

template <Terms kWhat, class T>
HWY_INLINE void AddTerms(const T* x, const T* dy, size_t n, V32 mean, V32& sum0, V32& sum1) {
  if constexpr (kWhat == Terms::kSum) {
    sum0 = hn::Add(sum0, LoadN(x, n));
  } else if constexpr (kWhat == Terms::kSquares) {
    V32 d = hn::Sub(LoadN(x, n), mean);
    if (n < hn::Lanes(F32())) d = hn::IfThenElseZero(hn::FirstN(F32(), n), d);
    sum0 = hn::MulAdd(d, d, sum0);
  } else {
    const V32 g = LoadN(dy, n);
    sum0 = hn::Add(sum0, g);
    sum1 = hn::MulAdd(g, hn::Sub(LoadN(x, n), mean), sum1);
  }
}

// (x - mean) * a + b, and of a gradient dy * a + (x - mean) * b + c.
template <Terms kWhat, class T>
HWY_INLINE void MapOne(const T* x, const T* dy, T* result, size_t n, V32 mean, V32 a, V32 b, V32 c) {
  const V32 d = hn::Sub(LoadN(x, n), mean);
  if constexpr (kWhat == Terms::kGradient)
    StoreN(hn::MulAdd(LoadN(dy, n), a, hn::MulAdd(d, b, c)), result, n);
  else
    StoreN(hn::MulAdd(d, a, b), result, n);
}

// ----------------------------------------------------------------------------------------------------------------
// planes

// Adds the terms of count elements, which have one mean.
template <Terms kWhat, class T>
HWY_INLINE void SumPlane(const T* x, const T* dy, int64_t count, float mean, double* sum0, double* sum1) {
  const F32 d;
  const int64_t lanes = hn::Lanes(d);
  const V32 m = hn::Set(d, mean);
  for (int64_t from = 0; from < count; from += kTerms * lanes) {
    const int64_t n = std::min(kTerms * lanes, count - from);
    V32 s0 = hn::Zero(d), s1 = s0, t0 = s0, t1 = s0;
    int64_t i = 0;
    const auto add = [&](int64_t at, size_t some, V32& a, V32& b) {
      AddTerms<kWhat>(x + from + at, kWhat == Terms::kGradient ? dy + from + at : dy, some, m, a, b);
    };
    for (; i + 2 * lanes <= n; i += 2 * lanes) {
      add(i, lanes, s0, s1);
      add(i + lanes, lanes, t0, t1);
    }
    ForEachVector(n - i, [&](int64_t k, size_t rest) { add(i + k, rest, s0, s1); });
    *sum0 += hn::GetLane(hn::SumOfLanes(d, hn::Add(s0, t0)));
    if constexpr (kWhat == Terms::kGradient) *sum1 += hn::GetLane(hn::SumOfLanes(d, hn::Add(s1, t1)));
  }
}

template <Terms kWhat, class T>
HWY_INLINE void MapPlane(const T* x, const T* dy, T* result, int64_t count, float mean, float a, float b, float c) {
  const F32 d;
  const V32 m = hn::Set(d, mean), va = hn::Set(d, a), vb = hn::Set(d, b), vc = hn::Set(d, c);
  ForEachVector(count, [&](int64_t i, size_t n) {
    MapOne<kWhat>(x + i, kWhat == Terms::kGradient ? dy + i : dy, result + i, n, m, va, vb, vc);
  });
}

// ------------------------------------------------------------------------------------------------------------------
// rows

// Adds the terms of `lines` lines of `length` elements, `stride` from each other, to sum0 and sum1 [length].
template <Terms kWhat, class T>
HWY_INLINE void AddLines(const T* x, const T* dy, int64_t lines, int64_t length, int64_t stride, const float* mean,
                         float* sum0, float* sum1) {
  constexpr int kVectors = 4;  // whose sums stay in registers
  constexpr bool kGrad = kWhat == Terms::kGradient;
  const F32 d;
  const int64_t lanes = hn::Lanes(d);
  const V32 zero = hn::Zero(d);
  int64_t j = 0;
  for (; j + kVectors * lanes <= length; j += kVectors * lanes) {
    V32 m[kVectors], s0[kVectors], s1[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      m[v] = kWhat == Terms::kSum ? zero : Load(mean + j + v * lanes);
      s0[v] = Load(sum0 + j + v * lanes);
      s1[v] = kGrad ? Load(sum1 + j + v * lanes) : zero;
    }
    for (int64_t r = 0; r < lines; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        const int64_t at = r * stride + j + v * lanes;
        AddTerms<kWhat>(x + at, kGrad ? dy + at : dy, lanes, m[v], s0[v], s1[v]);
      }
    }
    for (int v = 0; v < kVectors; ++v) {
      Store(s0[v], sum0 + j + v * lanes);
      if (kGrad) Store(s1[v], sum1 + j + v * lanes);
    }
  }
  ForEachVector(length - j, [&](int64_t i, size_t n) {
    const V32 m = kWhat == Terms::kSum ? zero : LoadN(mean + j + i, n);
    V32 s0 = LoadN(sum0 + j + i, n), s1 = kGrad ? LoadN(sum1 + j + i, n) : zero;
    for (int64_t r = 0; r < lines; ++r) {
      const int64_t at = r * stride + j + i;
      AddTerms<kWhat>(x + at, kGrad ? dy + at : dy, n, m, s0, s1);
    }
    StoreN(s0, sum0 + j + i, n);
    if (kGrad) StoreN(s1, sum1 + j + i, n);
  });
}

// f(first line, lines, elements of each): whole patterns some at a time, then the elements that fill none.
template <class F>
HWY_INLINE void ForEachLines(const Block& b, int64_t most, F f) {
  const bool joined = b.pattern != b.width;
  const int64_t elements = b.lines * b.width, lines = joined ? elements / b.pattern : b.lines;
  for (int64_t r = 0; r < lines; r += most) f(r, std::min(most, lines - r), b.pattern);
  if (joined && elements % b.pattern != 0) f(lines, int64_t{1}, elements % b.pattern);
}

// The two sums of each channel of the block.
template <Terms kWhat, class T>
HWY_INLINE void SumLines(const Block& b, const T* x, const T* dy, const Rows& rows) {
  constexpr bool kGrad = kWhat == Terms::kGradient;
  constexpr int64_t kBytes = 16 << 10;  // that stay in the first-level cache while some vectors of them are added
  const int64_t stride = b.pattern == b.width ? b.stride : b.pattern;
  const int64_t some = std::max<int64_t>(4, kBytes / (b.pattern * static_cast<int64_t>(sizeof(T))));
  std::fill_n(rows.channel0, b.channels, 0.0);
  std::fill_n(rows.channel1, b.channels, 0.0);
  ForEachLines(b, kTerms, [&](int64_t first, int64_t lines, int64_t length) {
    std::fill_n(rows.sum0, length, 0.0f);
    if (kGrad) std::fill_n(rows.sum1, length, 0.0f);
    for (int64_t r = 0; r < lines; r += some) {
      const int64_t at = (first + r) * stride;
      AddLines<kWhat>(x + at, kGrad ? dy + at : dy, std::min(some, lines - r), length, stride, rows.mean, rows.sum0,
                      rows.sum1);
    }
    for (int64_t j = 0; j < length;) {
      for (int64_t k = 0; k < b.channels; ++k) {
        for (int64_t i = 0; i < b.repeat; ++i, ++j) {
          rows.channel0[k] += rows.sum0[j];
          if (kGrad) rows.channel1[k] += rows.sum1[j];
        }
      }
    }
  });
}

template <Terms kWhat, class T>
HWY_INLINE void MapLines(const Block& b, const T* x, const T* dy, T* result, const Rows& rows) {
  const int64_t stride = b.pattern == b.width ? b.stride : b.pattern;
  ForEachLines(b, b.lines, [&](int64_t first, int64_t lines, int64_t length) {
    for (int64_t r = first; r < first + lines; ++r) {
      ForEachVector(length, [&](int64_t j, size_t n) {
        const int64_t at = r * stride + j;
        const V32 c = kWhat == Terms::kGradient ? LoadN(rows.c + j, n) : hn::Zero(F32());
        MapOne<kWhat>(x + at, kWhat == Terms::kGradient ? dy + at : dy, result + at, n, LoadN(rows.mean + j, n),
                      LoadN(rows.a + j, n), LoadN(rows.b + j, n), c);
      });
    }
  });
}

// row[j] = value(channel of j) for a pattern.
template <class F>
HWY_INLINE void Spread(const Block& b, float* row, F value) {
  for (int64_t j = 0; j < b.pattern;) {
    for (int64_t k = 0; k < b.channels; ++k) {
      const float v = value(k);
      for (int64_t i = 0; i < b.repeat; ++i) row[j++] = v;
    }
  }
}

// ------------------------------------------------------------------------------------------------------------
// operators

float Rstd(double squares, int64_t size, double eps) {
  return static_cast<float>(1 / std::sqrt(squares / static_cast<double>(size) + eps));
}

template <class T>
void Forward(const Block& b, const ForwardCall& o, const Rows& rows, double eps) {
  const T* x = static_cast<const T*>(o.x);
  T* y = static_cast<T*>(o.y);
  const T* none = nullptr;
  const int64_t groups = b.channels / b.group_channels;
  if (b.repeat == 0) {
    const int64_t size = b.group_channels * b.width;
    for (int64_t g = 0; g < groups; ++g) {
      double sum = 0, squares = 0;
      SumPlane<Terms::kSum>(x + g * size, none, size, 0, &sum, nullptr);
      const float mean = static_cast<float>(sum / static_cast<double>(size));
      SumPlane<Terms::kSquares>(x + g * size, none, size, mean, &squares, nullptr);
      const float rstd = Rstd(squares, size, eps);
      o.mean[g] = mean;
      o.rstd[g] = rstd;
      for (int64_t k = g * b.group_channels; k < (g + 1) * b.group_channels; ++k)
        MapPlane<Terms::kSum>(x + k * b.width, none, y + k * b.width, b.width, mean, rstd * o.scale[k], o.bias[k], 0);
    }
    return;
  }
  const int64_t size = b.group_channels * b.lines * b.repeat;
  const auto of_group = [&](const double* channels, int64_t g) {
    return std::accumulate(channels + g * b.group_channels, channels + (g + 1) * b.group_channels, 0.0);
  };
  SumLines<Terms::kSum>(b, x, none, rows);
  for (int64_t g = 0; g < groups; ++g)
    o.mean[g] = static_cast<float>(of_group(rows.channel0, g) / static_cast<double>(size));
  Spread(b, rows.mean, [&](int64_t k) { return o.mean[k / b.group_channels]; });
  SumLines<Terms::kSquares>(b, x, none, rows);
  for (int64_t g = 0; g < groups; ++g) o.rstd[g] = Rstd(of_group(rows.channel0, g), size, eps);
  Spread(b, rows.a, [&](int64_t k) { return o.rstd[k / b.group_channels] * o.scale[k]; });
  Spread(b, rows.b, [&](int64_t k) { return o.bias[k]; });
  MapLines<Terms::kSum>(b, x, none, y, rows);
}

// What a group's gradient has of dy's mean and slope.
struct GroupSlope {
  float b, c;
};
// Of the sums of a group's channels of dy and of dy * (x - mean); writes the channels' gradients.
HWY_INLINE GroupSlope SlopeOf(const BackwardCall& o, int64_t g, int64_t begin, int64_t end, int64_t size,
                              const double* sum0, const double* sum1) {
  const double rstd = o.rstd[g];
  double mean = 0, slope = 0;
  for (int64_t k = begin; k < end; ++k) {
    mean += sum0[k] * o.scale[k];
    slope += sum1[k] * rstd * o.scale[k];
    o.dbias[k] = static_cast<float>(sum0[k]);
    o.dscale[k] = static_cast<float>(sum1[k] * rstd);
  }
  const double inverse = 1 / static_cast<double>(size);
  return {static_cast<float>(-rstd * rstd * slope * inverse), static_cast<float>(-rstd * mean * inverse)};
}

template <class T>
void Backward(const Block& b, const BackwardCall& o, const Rows& rows) {
  const T *x = static_cast<const T*>(o.x), *dy = static_cast<const T*>(o.dy);
  T* dx = static_cast<T*>(o.dx);
  const int64_t groups = b.channels / b.group_channels;
  if (b.repeat == 0) {
    for (int64_t g = 0; g < groups; ++g) {
      const int64_t begin = g * b.group_channels, end = begin + b.group_channels;
      for (int64_t k = begin; k < end; ++k) {
        rows.channel0[k] = rows.channel1[k] = 0;
        SumPlane<Terms::kGradient>(x + k * b.width, dy + k * b.width, b.width, o.mean[g], &rows.channel0[k],
                                   &rows.channel1[k]);
      }
      const GroupSlope s = SlopeOf(o, g, begin, end, b.group_channels * b.width, rows.channel0, rows.channel1);
      for (int64_t k = begin; k < end; ++k) {
        const int64_t at = k * b.width;
        MapPlane<Terms::kGradient>(x + at, dy + at, dx + at, b.width, o.mean[g], o.rstd[g] * o.scale[k], s.b, s.c);
      }
    }
    return;
  }
  Spread(b, rows.mean, [&](int64_t k) { return o.mean[k / b.group_channels]; });
  SumLines<Terms::kGradient>(b, x, dy, rows);
  for (int64_t g = 0; g < groups; ++g) {
    const int64_t begin = g * b.group_channels, end = begin + b.group_channels;
    const GroupSlope s = SlopeOf(o, g, begin, end, b.group_channels * b.lines * b.repeat, rows.channel0, rows.channel1);
    std::fill(rows.channel0 + begin, rows.channel0 + end, s.b);
    std::fill(rows.channel1 + begin, rows.channel1 + end, s.c);
  }
  Spread(b, rows.a, [&](int64_t k) { return o.rstd[k / b.group_channels] * o.scale[k]; });
  Spread(b, rows.b, [&](int64_t k) { return static_cast<float>(rows.channel0[k]); });
  Spread(b, rows.c, [&](int64_t k) { return static_cast<float>(rows.channel1[k]); });
  MapLines<Terms::kGradient>(b, x, dy, dx, rows);
}

void ForwardOf(bool bf16, const Block& b, const ForwardCall& o, const Rows& rows, double eps) {
  bf16 ? Forward<BF16>(b, o, rows, eps) : Forward<float>(b, o, rows, eps);
}
void BackwardOf(bool bf16, const Block& b, const BackwardCall& o, const Rows& rows) {
  bf16 ? Backward<BF16>(b, o, rows) : Backward<float>(b, o, rows);
}

}  // namespace HWY_NAMESPACE
}  // namespace mslua
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mslua {

HWY_EXPORT(ForwardOf);
HWY_EXPORT(BackwardOf);

namespace {

// group_norm_apply: x, scale, bias -> y, mean, rstd. Gradient: dy, x, mean, rstd, scale -> dx, dscale, dbias.
class GroupNormKernel : public Kernel {
 public:
  GroupNormKernel(const OpSpec& s, bool gradient)
      : last_(s.attrs.Str("data_format") == "NHWC"),
        bf16_(s.inputs[0].dtype == DType::kBF16),
        gradient_(gradient),
        eps_(gradient ? 0 : s.attrs.Float("eps")),
        bytes_(SizeOf(s.inputs[0].dtype)),
        groups_(s.attrs.Int("groups")) {
    const Shape& x = s.inputs[0].shape;
    samples_ = x[0];
    channels_ = x[last_ ? 3 : 1];
    inner_ = last_ ? x[1] * x[2] : x[2] * x[3];
    // By the sizes alone, so that sums do not depend on the number of threads.
    if (!last_ && inner_ >= kPlane)
      blocks_ = groups_;
    else if (samples_ < kSamples)
      blocks_ = std::clamp<int64_t>(channels_ * (last_ ? 1 : inner_) / kWidth, 1, kSamples / samples_);
    while (groups_ % blocks_ != 0) --blocks_;
    block_.channels = channels_ / blocks_;
    block_.group_channels = channels_ / groups_;
    if (last_) {
      block_.lines = inner_, block_.width = block_.channels, block_.stride = channels_, block_.repeat = 1;
    } else {
      block_.lines = 1, block_.width = inner_, block_.stride = 0, block_.repeat = 0;
      if (inner_ < kPlane) block_.width *= block_.channels, block_.repeat = inner_;
    }
    block_.pattern = block_.width;
    const int64_t joined = block_.width * (kVector / std::gcd(block_.width, kVector));
    if (block_.stride == block_.width && joined <= std::min(kPattern, block_.lines * block_.width))
      block_.pattern = joined;
    const int64_t items = samples_ * blocks_;
    parts_ = std::min(items, std::clamp<int64_t>(items * block_.channels * inner_ / kGrain, 1, kParts));
  }

  int64_t scratch_bytes() const override { return parts_ * PartBytes(); }

  Status Run(const Buffers& b) override {
    ParallelFor(parts_, 1, [&](int64_t begin, int64_t end) {
      for (int64_t p = begin; p < end; ++p) {
        const Rows rows = RowsAt(static_cast<char*>(b.scratch) + p * PartBytes());
        const int64_t items = samples_ * blocks_;
        for (int64_t i = items * p / parts_; i < items * (p + 1) / parts_; ++i) {
          const int64_t sample = i / blocks_, channel = i % blocks_ * block_.channels;
          if (gradient_)
            HWY_DYNAMIC_DISPATCH(BackwardOf)(bf16_, block_, BackwardAt(b, sample, channel), rows);
          else
            HWY_DYNAMIC_DISPATCH(ForwardOf)(bf16_, block_, ForwardAt(b, sample, channel), rows, eps_);
        }
      }
    });
    return absl::OkStatus();
  }

 private:
  static constexpr int64_t kPlane = 16;        // elements of a channel side by side that are a loop of their own
  static constexpr int64_t kSamples = 8;       // so many are shared out to threads whole
  static constexpr int64_t kWidth = 32;        // elements of a row that are worth a block
  static constexpr int64_t kVector = 16;       // elements of the longest vector
  static constexpr int64_t kPattern = 1024;    // elements of the longest pattern
  static constexpr int64_t kGrain = 8 * 1024;  // elements that are worth a thread
  static constexpr int64_t kParts = 64;

  // Rounded up, so that parts share no line of a cache.
  int64_t PartBytes() const {
    return (6 * block_.pattern * static_cast<int64_t>(sizeof(float)) +
            2 * block_.channels * static_cast<int64_t>(sizeof(double)) + 63) /
           64 * 64;
  }

  Rows RowsAt(char* scratch) const {
    auto* channels = reinterpret_cast<double*>(scratch);
    auto* f = reinterpret_cast<float*>(channels + 2 * block_.channels);
    const int64_t n = block_.pattern;
    return {f, f + n, f + 2 * n, f + 3 * n, f + 4 * n, f + 5 * n, channels, channels + block_.channels};
  }

  // The first element of a channel of a sample.
  int64_t Place(int64_t sample, int64_t channel) const {
    return sample * inner_ * channels_ + (last_ ? channel : channel * inner_);
  }
  const char* ImagesAt(const void* images, int64_t sample, int64_t channel) const {
    return static_cast<const char*>(images) + Place(sample, channel) * bytes_;
  }
  char* ImagesAt(void* images, int64_t sample, int64_t channel) const {
    return static_cast<char*>(images) + Place(sample, channel) * bytes_;
  }

  ForwardCall ForwardAt(const Buffers& b, int64_t sample, int64_t channel) const {
    const int64_t group = sample * groups_ + channel / block_.group_channels;
    return {ImagesAt(b.inputs[0], sample, channel),           static_cast<const float*>(b.inputs[1]) + channel,
            static_cast<const float*>(b.inputs[2]) + channel, ImagesAt(b.outputs[0], sample, channel),
            static_cast<float*>(b.outputs[1]) + group,        static_cast<float*>(b.outputs[2]) + group};
  }
  BackwardCall BackwardAt(const Buffers& b, int64_t sample, int64_t channel) const {
    const int64_t group = sample * groups_ + channel / block_.group_channels, row = sample * channels_ + channel;
    return {ImagesAt(b.inputs[0], sample, channel),           ImagesAt(b.inputs[1], sample, channel),
            static_cast<const float*>(b.inputs[2]) + group,   static_cast<const float*>(b.inputs[3]) + group,
            static_cast<const float*>(b.inputs[4]) + channel, ImagesAt(b.outputs[0], sample, channel),
            static_cast<float*>(b.outputs[1]) + row,          static_cast<float*>(b.outputs[2]) + row};
  }

  const bool last_, bf16_, gradient_;
  const double eps_;
  const int64_t bytes_, groups_;  // bytes of an element
  int64_t samples_ = 0, channels_ = 0, inner_ = 0;
  int64_t blocks_ = 1, parts_ = 1;
  Block block_ = {};
};

}  // namespace

FastKernel HighwayGroupNorm(bool gradient) {
  return {"highway",
          [](const OpSpec& s) {
            return (s.inputs[0].dtype == DType::kF32 || s.inputs[0].dtype == DType::kBF16) &&
                   s.inputs[0].elements() > 0;
          },
          [=](const OpSpec& s) -> StatusOr<std::unique_ptr<Kernel>> {
            return std::make_unique<GroupNormKernel>(s, gradient);
          }};
}

}  // namespace mslua
#endif  // HWY_ONCE
