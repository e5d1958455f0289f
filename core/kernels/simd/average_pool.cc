#include "core/kernels/simd/average_pool.h"

#include <algorithm>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "core/base/parallel_for.h"
#include "core/base/round_up.h"
#include "core/kernels/dispatch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/kernels/simd/average_pool.cc"
// foreach_target.h first: it includes this file once for each instruction set.
// clang-format off
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "core/kernels/simd/simd-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace mslua {
namespace HWY_NAMESPACE {

// Rows [begin, end) of the results, counted over all images. `kLinear`: whether distances count.
template <bool kLinear, class T>
void Pool(const AveragePooling& p, const T* source, T* result, int64_t begin, int64_t end) {
  const F32 d;
  const AverageAxis &h = p.rows, &w = p.columns;
  const int64_t width = w.sources();
  for (int64_t t = begin; t < end; ++t) {
    const int64_t i = t % h.results();
    const T* image = source + t / h.results() * h.sources() * width * p.c;
    for (int64_t j = 0; j < w.results(); ++j) {
      T* out = result + (t * w.results() + j) * p.c;
      const V32 scale = hn::Set(d, static_cast<float>(h.result_scale[i] * w.result_scale[j]));
      ForEachVector(p.c, [&](int64_t c, size_t n) {
        V32 sum = hn::Zero(d);
        for (int64_t r = h.begin[i]; r < h.end[i]; ++r) {
          for (int64_t q = w.begin[j]; q < w.end[j]; ++q) {
            const double weight = kLinear ? h.Weight(i, r) * w.Weight(j, q) : h.source_scale[r] * w.source_scale[q];
            sum = hn::MulAdd(hn::Set(d, static_cast<float>(weight)), LoadN(image + (r * width + q) * p.c + c, n), sum);
          }
        }
        StoreN(hn::Mul(sum, scale), out + c, n);
      });
    }
  }
}

// The same where channels are not last, counted over all planes: first the rows of a window as one, then its columns.
template <class T>
void PoolPlanes(const AveragePooling& p, const T* source, T* result, int64_t begin, int64_t end) {
  const F32 d;
  const AverageAxis &h = p.rows, &w = p.columns;
  const int64_t width = w.sources(), results = w.results();
  const bool linear = !w.result_at.empty();
  const std::vector<float> scales(w.source_scale.begin(), w.source_scale.end());
  std::vector<float> sums(width);
  for (int64_t t = begin; t < end; ++t) {
    const int64_t i = t % h.results();
    T* out = result + t * results;
    if (t > begin && i > 0 && h.SameResult(i, i - 1)) {
      std::copy_n(out - results, results, out);
      continue;
    }
    const T* plane = source + t / h.results() * h.sources() * width;
    ForEachVector(width, [&](int64_t q, size_t n) {
      V32 sum = hn::Zero(d);
      for (int64_t r = h.begin[i]; r < h.end[i]; ++r)
        sum = hn::MulAdd(hn::Set(d, static_cast<float>(h.Weight(i, r))), LoadN(plane + r * width + q, n), sum);
      sum = hn::Mul(sum, hn::Set(d, static_cast<float>(h.result_scale[i])));
      StoreN(hn::Mul(sum, LoadN(scales.data() + q, n)), sums.data() + q, n);
    });
    for (int64_t j = 0; j < results; ++j) {
      float sum = 0;
      for (int64_t q = w.begin[j]; q < w.end[j]; ++q)
        sum += linear ? static_cast<float>(w.Nearness(j, q)) * sums[q] : sums[q];
      out[j] = static_cast<T>(sum * static_cast<float>(w.result_scale[j]));
    }
  }
}

template <class T>
void PoolAny(const AveragePooling& p, const void* source, void* result, int64_t begin, int64_t end) {
  const T* x = static_cast<const T*>(source);
  T* y = static_cast<T*>(result);
  if (!p.channels_last) return PoolPlanes(p, x, y, begin, end);
  p.rows.result_at.empty() ? Pool<false>(p, x, y, begin, end) : Pool<true>(p, x, y, begin, end);
}
void PoolF32(const AveragePooling& p, const void* source, void* result, int64_t begin, int64_t end) {
  PoolAny<float>(p, source, result, begin, end);
}
void PoolBF16(const AveragePooling& p, const void* source, void* result, int64_t begin, int64_t end) {
  PoolAny<BF16>(p, source, result, begin, end);
}

}  // namespace HWY_NAMESPACE
}  // namespace mslua
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mslua {

HWY_EXPORT(PoolF32);
HWY_EXPORT(PoolBF16);

namespace {

constexpr int64_t kGrain = 16 * 1024;  // elements below which one thread does all

class AveragePoolKernel : public Kernel {
 public:
  AveragePoolKernel(AveragePooling p, DType t) : p_(std::move(p)), bf16_(t == DType::kBF16) {}

  Status Run(const Buffers& b) override {
    const int64_t work = std::max(p_.source().elements(), p_.result().elements());
    const int64_t rows = p_.n * (p_.channels_last ? 1 : p_.c) * p_.rows.results();
    ParallelFor(rows, kGrain * rows / (work + 1) + 1, [&](int64_t begin, int64_t end) {
      if (bf16_)
        HWY_DYNAMIC_DISPATCH(PoolBF16)(p_, b.inputs[0], b.outputs[0], begin, end);
      else
        HWY_DYNAMIC_DISPATCH(PoolF32)(p_, b.inputs[0], b.outputs[0], begin, end);
    });
    return absl::OkStatus();
  }

 private:
  const AveragePooling p_;
  const bool bf16_;
};

}  // namespace

AverageAxis AverageAxis::Transposed() const {
  AverageAxis t;
  t.result_scale = source_scale;
  t.source_scale = result_scale;
  t.result_at = source_at;
  t.source_at = result_at;
  t.begin.assign(sources(), 0);
  t.end.assign(sources(), 0);
  // Windows start and end in order, so those over one position are neighbours.
  for (int64_t s = 0; s < sources(); ++s) {
    while (t.begin[s] < results() && end[t.begin[s]] <= s) ++t.begin[s];
    t.end[s] = t.begin[s];
    while (t.end[s] < results() && begin[t.end[s]] <= s) ++t.end[s];
  }
  return t;
}

std::vector<float> AverageAxis::Matrix(bool transposed) const {
  std::vector<float> m(static_cast<size_t>(results() * sources()));
  for (int64_t i = 0; i < results(); ++i) {
    for (int64_t s = begin[i]; s < end[i]; ++s)
      m[transposed ? s * results() + i : i * sources() + s] = static_cast<float>(result_scale[i] * Weight(i, s));
  }
  return m;
}

Status CheckAverages(absl::Span<const int64_t> axes) {
  constexpr int64_t kMost = 1 << 26;
  for (int64_t n : axes) {
    if (n > kMost)
      return absl::InvalidArgumentError(absl::StrCat("expected at most ", kMost, " elements along an axis, got ", n));
  }
  return absl::OkStatus();
}

AverageAxis WindowAverages(const Window& window, int axis, int64_t size, bool count_padding) {
  AverageAxis a;
  a.source_scale.assign(size, 1);
  const int64_t results =
      OutputSize(window, axis == 0 ? size : window.size[0], axis == 1 ? size : window.size[1])[axis];
  for (int64_t i = 0; i < results; ++i) {
    const int64_t start = window.Start(axis, i), stop = start + window.size[axis];
    a.begin.push_back(std::max<int64_t>(start, 0));
    a.end.push_back(std::min(stop, size));
    a.result_scale.push_back(1.0 / static_cast<double>(count_padding ? stop - start : a.end.back() - a.begin.back()));
  }
  return a;
}

AverageAxis AdaptiveAverages(int64_t size, int64_t results) {
  AverageAxis a;
  a.source_scale.assign(size, 1);
  for (int64_t i = 0; i < results; ++i) {
    a.begin.push_back(i * size / results);
    a.end.push_back(CeilDiv((i + 1) * size, results));
    a.result_scale.push_back(1.0 / static_cast<double>(a.end.back() - a.begin.back()));
  }
  return a;
}

AverageAxis ResizeAxis(int64_t size, int64_t results, const ResizeRule& rule) {
  AverageAxis a;
  a.source_scale.assign(size, 1);
  a.result_scale.assign(results, 1);
  const bool corners = rule.align_corners && results > 1;
  // A position is (i + shift) * above / below - shift.
  const int64_t above = corners ? size - 1 : size, below = corners ? results - 1 : results;
  for (int64_t i = 0; i < results; ++i) {
    const int64_t twice = 2 * i + (rule.half_pixel_centers ? 1 : 0);
    if (!rule.linear) {
      // In whole numbers, since a position at the border of two sources would depend on rounding.
      const int64_t at = rule.align_corners ? (twice * above + below) / (2 * below) : twice * above / (2 * below);
      a.begin.push_back(std::min(at, size - 1));
      a.end.push_back(a.begin.back() + 1);
      continue;
    }
    const double shift = rule.half_pixel_centers ? 0.5 : 0;
    const double position = static_cast<double>(twice * above) / static_cast<double>(2 * below) - shift;
    a.result_at.push_back(std::clamp<double>(position, 0, static_cast<double>(size - 1)));
    a.begin.push_back(static_cast<int64_t>(a.result_at.back()));
    a.end.push_back(a.begin.back() + (a.result_at.back() > static_cast<double>(a.begin.back()) ? 2 : 1));
  }
  for (int64_t s = 0; rule.linear && s < size; ++s) a.source_at.push_back(static_cast<double>(s));
  return a;
}

void ReferenceAveragePool(const AveragePooling& p, DType t, const void* source, void* result) {
  const Image from = p.source(), to = p.result();
  const auto fs = from.strides(), ts = to.strides();
  DispatchDType(t, [&](auto zero) {
    using T = decltype(zero);
    using C = std::conditional_t<std::is_same_v<T, bool>, int, ComputeType<T>>;
    const T* x = static_cast<const T*>(source);
    T* y = static_cast<T*>(result);
    for (int64_t n = 0; n < p.n; ++n) {
      for (int64_t c = 0; c < p.c; ++c) {
        for (int64_t i = 0; i < to.h; ++i) {
          for (int64_t j = 0; j < to.w; ++j) {
            C sum{0};
            for (int64_t r = p.rows.begin[i]; r < p.rows.end[i]; ++r) {
              for (int64_t q = p.columns.begin[j]; q < p.columns.end[j]; ++q) {
                const C scale = C(p.rows.Weight(i, r)) * C(p.columns.Weight(j, q));
                sum += scale * static_cast<C>(x[n * fs[0] + c * fs[1] + r * fs[2] + q * fs[3]]);
              }
            }
            y[n * ts[0] + c * ts[1] + i * ts[2] + j * ts[3]] =
                static_cast<T>(sum * C(p.rows.result_scale[i]) * C(p.columns.result_scale[j]));
          }
        }
      }
    }
  });
}

FastKernel HighwayAveragePool(AverageMap map) {
  return {"highway",
          [](const OpSpec& s) {
            const DType t = s.inputs[0].dtype;
            return t == DType::kF32 || t == DType::kBF16;
          },
          [map](const OpSpec& s) -> StatusOr<std::unique_ptr<Kernel>> {
            ASSIGN_OR_RETURN(AveragePooling p, map(s.attrs, s.inputs[0]));
            return std::make_unique<AveragePoolKernel>(std::move(p), s.inputs[0].dtype);
          }};
}

}  // namespace mslua
#endif  // HWY_ONCE
