#include "core/kernels/simd/max_pool.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "core/base/parallel_for.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/kernels/simd/max_pool.cc"
// foreach_target.h first: it includes this file once for each instruction set.
// clang-format off
#include "core/base/round_up.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "core/kernels/simd/simd-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace mslua {
namespace HWY_NAMESPACE {

// NaN wins, so that it is not lost.
HWY_INLINE hn::Mask<F32> Beats(V32 v, V32 best) {
  return hn::Or(hn::Gt(v, best), hn::AndNot(hn::IsNaN(best), hn::IsNaN(v)));
}

// Rows [begin, end) of the results, counted over all images.
template <class T>
void Forward(const Pooling& p, const T* x, T* y, int64_t begin, int64_t end) {
  for (int64_t t = begin; t < end; ++t) {
    const T* image = x + t / p.y.h * p.x.pixels() * p.x.c;
    const auto rows = p.Covered(0, t % p.y.h);
    for (int64_t j = 0; j < p.y.w; ++j) {
      const auto columns = p.Covered(1, j);
      T* out = y + (t * p.y.w + j) * p.y.c;
      ForEachVector(p.x.c, [&](int64_t c, size_t n) {
        V32 best = LoadN(image + (rows.begin * p.x.w + columns.begin) * p.x.c + c, n);
        for (int64_t r = rows.begin; r < rows.end; ++r) {
          for (int64_t q = columns.begin; q < columns.end; ++q) {
            const V32 v = LoadN(image + (r * p.x.w + q) * p.x.c + c, n);
            best = hn::IfThenElse(Beats(v, best), v, best);
          }
        }
        StoreN(best, out + c, n);
      });
    }
  }
}

// Images [begin, end): windows overlap, so an image is one piece of work. An image's gradient is summed in `sums`,
// which is null where it is summed in dx itself.
template <class T, class S>
void Backward(const Pooling& p, const T* x, const T* dy, T* dx, S* sums, int64_t begin, int64_t end) {
  const F32 d;
  const int64_t image = p.x.pixels() * p.x.c;
  x += begin * image;
  dx += begin * image;
  dy += begin * p.y.pixels() * p.y.c;
  for (int64_t n = begin; n < end; ++n, x += image, dx += image) {
    S* to_image;
    if constexpr (std::is_same_v<S, T>)
      to_image = dx;
    else
      to_image = sums;
    std::memset(static_cast<void*>(to_image), 0, image * sizeof(S));
    for (int64_t i = 0; i < p.y.h; ++i) {
      const auto rows = p.Covered(0, i);
      for (int64_t j = 0; j < p.y.w; ++j, dy += p.y.c) {
        const auto columns = p.Covered(1, j);
        ForEachVector(p.x.c, [&](int64_t c, size_t lanes) {
          V32 best = LoadN(x + (rows.begin * p.x.w + columns.begin) * p.x.c + c, lanes), where = hn::Zero(d);
          float tap = 0;
          for (int64_t r = rows.begin; r < rows.end; ++r) {
            for (int64_t q = columns.begin; q < columns.end; ++q, ++tap) {
              const V32 v = LoadN(x + (r * p.x.w + q) * p.x.c + c, lanes);
              const auto beats = Beats(v, best);
              best = hn::IfThenElse(beats, v, best);
              where = hn::IfThenElse(beats, hn::Set(d, tap), where);
            }
          }
          const V32 flow = LoadN(dy + c, lanes);
          tap = 0;
          for (int64_t r = rows.begin; r < rows.end; ++r) {
            for (int64_t q = columns.begin; q < columns.end; ++q, ++tap) {
              S* to = to_image + (r * p.x.w + q) * p.x.c + c;
              StoreN(hn::Add(LoadN(to, lanes), hn::IfThenElseZero(hn::Eq(where, hn::Set(d, tap)), flow)), to, lanes);
            }
          }
        });
      }
    }
    if constexpr (!std::is_same_v<S, T>)
      ForEachVector(image, [&](int64_t i, size_t lanes) { StoreN(LoadN(sums + i, lanes), dx + i, lanes); });
  }
}

void ForwardF32(const Pooling& p, const float* x, float* y, int64_t begin, int64_t end) {
  Forward(p, x, y, begin, end);
}
void ForwardBF16(const Pooling& p, const BF16* x, BF16* y, int64_t begin, int64_t end) { Forward(p, x, y, begin, end); }
void BackwardF32(const Pooling& p, const float* x, const float* dy, float* dx, int64_t begin, int64_t end) {
  Backward<float, float>(p, x, dy, dx, nullptr, begin, end);
}
// `sums`: memory for one image, or null where windows do not overlap, so that nothing is added up.
void BackwardBF16(const Pooling& p, const BF16* x, const BF16* dy, BF16* dx, float* sums, int64_t begin, int64_t end) {
  if (sums == nullptr)
    Backward<BF16, BF16>(p, x, dy, dx, nullptr, begin, end);
  else
    Backward<BF16, float>(p, x, dy, dx, sums, begin, end);
}

}  // namespace HWY_NAMESPACE
}  // namespace mslua
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mslua {

HWY_EXPORT(ForwardF32);
HWY_EXPORT(ForwardBF16);
HWY_EXPORT(BackwardF32);
HWY_EXPORT(BackwardBF16);

namespace {

// Elements of the result below which one thread does all.
constexpr int64_t kGrain = 16 * 1024;

class MaxPoolKernel : public Kernel {
 public:
  MaxPoolKernel(const Pooling& p, DType t) : p_(p), bf16_(t == DType::kBF16) {}

  Status Run(const Buffers& b) override {
    const int64_t row = std::max<int64_t>(1, p_.y.w * p_.y.c);
    ParallelFor(p_.y.n * p_.y.h, kGrain / row + 1, [&](int64_t begin, int64_t end) {
      if (bf16_) HWY_DYNAMIC_DISPATCH(ForwardBF16)
      (p_, static_cast<const BF16*>(b.inputs[0]), static_cast<BF16*>(b.outputs[0]), begin, end);
      else HWY_DYNAMIC_DISPATCH(ForwardF32)(p_, static_cast<const float*>(b.inputs[0]),
                                            static_cast<float*>(b.outputs[0]), begin, end);
    });
    return absl::OkStatus();
  }

 private:
  const Pooling p_;
  const bool bf16_;
};

class MaxPoolGradKernel : public Kernel {
 public:
  MaxPoolGradKernel(const Pooling& p, DType t) : p_(p), bf16_(t == DType::kBF16) {
    const Window& w = p.window;
    const int64_t image = p.x.pixels() * p.x.c;
    shares_ = image == 0 ? 1 : std::min<int64_t>(ComputeThreads(), CeilDiv(p.x.n * image, kGrain));
    shares_ = std::max<int64_t>(1, std::min(shares_, p.x.n));
    if (bf16_ && (w.size[0] > w.stride[0] || w.size[1] > w.stride[1])) sums_ = image;
  }

  int64_t scratch_bytes() const override { return shares_ * sums_ * static_cast<int64_t>(sizeof(float)); }

  Status Run(const Buffers& b) override {
    ParallelFor(shares_, 1, [&](int64_t first, int64_t last) {
      for (int64_t t = first; t < last; ++t) {
        const int64_t begin = p_.x.n * t / shares_, end = p_.x.n * (t + 1) / shares_;
        if (bf16_) {
          float* const sums = sums_ == 0 ? nullptr : static_cast<float*>(b.scratch) + t * sums_;
          HWY_DYNAMIC_DISPATCH(BackwardBF16)
          (p_, static_cast<const BF16*>(b.inputs[0]), static_cast<const BF16*>(b.inputs[1]),
           static_cast<BF16*>(b.outputs[0]), sums, begin, end);
        } else {
          HWY_DYNAMIC_DISPATCH(BackwardF32)
          (p_, static_cast<const float*>(b.inputs[0]), static_cast<const float*>(b.inputs[1]),
           static_cast<float*>(b.outputs[0]), begin, end);
        }
      }
    });
    return absl::OkStatus();
  }

 private:
  const Pooling p_;
  const bool bf16_;
  int64_t shares_ = 1;  // of the images, one a thread
  int64_t sums_ = 0;    // f32 sums of a share: bf16 would be rounded after each addition
};

template <class K>
FastKernel PoolKernel() {
  return {"highway",
          [](const OpSpec& s) {
            const DType t = s.inputs[0].dtype;
            return ChannelsLast(s.attrs) && (t == DType::kF32 || t == DType::kBF16);
          },
          [](const OpSpec& s) -> StatusOr<std::unique_ptr<Kernel>> {
            ASSIGN_OR_RETURN(const Pooling p, ResolvePooling(s.attrs, s.inputs[0]));
            return std::make_unique<K>(p, s.inputs[0].dtype);
          }};
}

}  // namespace

StatusOr<Pooling> ResolvePooling(const Attrs& attrs, const TensorType& x) {
  const bool last = ChannelsLast(attrs);
  if (x.rank() != 4)
    return absl::InvalidArgumentError(absl::StrCat("expected 4 dimensions, ", last ? "[n, h, w, c]" : "[n, c, h, w]"));
  Pooling p;
  p.x = Image::Of(x, last);
  ASSIGN_OR_RETURN(const auto size, Pair(attrs, "kernel_size"));
  ASSIGN_OR_RETURN(p.window, ResolveWindow(attrs, size, p.x.h, p.x.w));
  for (int a = 0; a < 2; ++a) {
    if (p.window.before[a] >= size[a] || p.window.after[a] >= size[a]) {
      return absl::InvalidArgumentError(
          absl::StrCat("padding is not smaller than kernel_size ", size[a], ": some windows would be empty"));
    }
  }
  const auto out = OutputSize(p.window, p.x.h, p.x.w);
  p.y = {p.x.n, p.x.c, out[0], out[1], last};
  return p;
}

FastKernel HighwayMaxPool() { return PoolKernel<MaxPoolKernel>(); }
FastKernel HighwayMaxPoolGrad() { return PoolKernel<MaxPoolGradKernel>(); }

}  // namespace mslua
#endif  // HWY_ONCE
