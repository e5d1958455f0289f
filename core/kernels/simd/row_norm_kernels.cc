#include "core/kernels/simd/row_norm_kernels.h"

#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/kernels/simd/row_norm_kernels.cc"
// foreach_target.h first: it includes this file once for each instruction set.
// clang-format off
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "core/kernels/simd/simd-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace mslua {
namespace HWY_NAMESPACE {

// Lanes from n on become zero.
HWY_INLINE V32 Only(V32 v, size_t n) { return n == hn::Lanes(F32()) ? v : hn::IfThenElseZero(hn::FirstN(F32(), n), v); }

template <class T>
void Forward(const RowNorm& s, const RowNormForward& c, int64_t begin, int64_t end) {
  const F32 d;
  const float inverse = 1.0f / static_cast<float>(s.size);
  for (int64_t r = begin; r < end; ++r) {
    const T* x = static_cast<const T*>(c.x) + r * s.size;
    T* y = static_cast<T*>(c.y) + r * s.size;
    V32 sum = hn::Zero(d), square = hn::Zero(d);
    float mean = 0;
    if (s.centred) {
      ForEachVector(s.size, [&](int64_t i, size_t n) { sum = hn::Add(sum, LoadN(x + i, n)); });
      mean = hn::GetLane(hn::SumOfLanes(d, sum)) * inverse;
      c.mean[r] = mean;
    }
    const V32 m = hn::Set(d, mean);
    ForEachVector(s.size, [&](int64_t i, size_t n) {
      const V32 v = Only(hn::Sub(LoadN(x + i, n), m), n);
      square = hn::MulAdd(v, v, square);
    });
    const float rstd = 1.0f / std::sqrt(hn::GetLane(hn::SumOfLanes(d, square)) * inverse + static_cast<float>(s.eps));
    c.rstd[r] = rstd;
    const V32 k = hn::Set(d, rstd);
    ForEachVector(s.size, [&](int64_t i, size_t n) {
      const V32 v = hn::Mul(hn::Mul(hn::Sub(LoadN(x + i, n), m), k), LoadN(c.scale + i, n));
      StoreN(s.centred ? hn::Add(v, LoadN(c.bias + i, n)) : v, y + i, n);
    });
  }
}

template <class T>
void GradInput(const RowNorm& s, const RowNormBackward& c, int64_t begin, int64_t end) {
  const F32 d;
  const float inverse = 1.0f / static_cast<float>(s.size);
  for (int64_t r = begin; r < end; ++r) {
    const T *x = static_cast<const T*>(c.x) + r * s.size, *dy = static_cast<const T*>(c.dy) + r * s.size;
    T* dx = static_cast<T*>(c.dx) + r * s.size;
    const V32 m = hn::Set(d, s.centred ? c.mean[r] : 0), k = hn::Set(d, c.rstd[r]);
    V32 sum = hn::Zero(d), slope = hn::Zero(d);
    ForEachVector(s.size, [&](int64_t i, size_t n) {
      const V32 g = hn::Mul(LoadN(dy + i, n), LoadN(c.scale + i, n));
      sum = hn::Add(sum, g);
      slope = hn::MulAdd(g, hn::Mul(hn::Sub(LoadN(x + i, n), m), k), slope);
    });
    const V32 mean = hn::Set(d, s.centred ? hn::GetLane(hn::SumOfLanes(d, sum)) * inverse : 0);
    const V32 b = hn::Set(d, hn::GetLane(hn::SumOfLanes(d, slope)) * inverse);
    ForEachVector(s.size, [&](int64_t i, size_t n) {
      const V32 normal = hn::Mul(hn::Sub(LoadN(x + i, n), m), k);
      const V32 g = hn::Sub(hn::Mul(LoadN(dy + i, n), LoadN(c.scale + i, n)), mean);
      StoreN(hn::Mul(k, hn::NegMulAdd(normal, b, g)), dx + i, n);
    });
  }
}

template <class T>
void GradParams(const RowNorm& s, const RowNormBackward& c, float* sums, int64_t begin, int64_t end) {
  const F32 d;
  const T *x = static_cast<const T*>(c.x), *dy = static_cast<const T*>(c.dy);
  ForEachVector(s.size, [&](int64_t i, size_t n) {
    V32 scale = hn::Zero(d), bias = hn::Zero(d);
    for (int64_t r = begin; r < end; ++r) {
      const V32 g = LoadN(dy + r * s.size + i, n);
      const V32 normal =
          hn::Mul(hn::Sub(LoadN(x + r * s.size + i, n), hn::Set(d, s.centred ? c.mean[r] : 0)), hn::Set(d, c.rstd[r]));
      scale = hn::MulAdd(g, normal, scale);
      bias = hn::Add(bias, g);
    }
    StoreN(scale, sums + i, n);
    StoreN(bias, sums + s.size + i, n);
  });
}

void ForwardOf(bool bf16, const RowNorm& n, const RowNormForward& c, int64_t b, int64_t e) {
  bf16 ? Forward<BF16>(n, c, b, e) : Forward<float>(n, c, b, e);
}
void GradInputOf(bool bf16, const RowNorm& n, const RowNormBackward& c, int64_t b, int64_t e) {
  bf16 ? GradInput<BF16>(n, c, b, e) : GradInput<float>(n, c, b, e);
}
void GradParamsOf(bool bf16, const RowNorm& n, const RowNormBackward& c, float* sums, int64_t b, int64_t e) {
  bf16 ? GradParams<BF16>(n, c, sums, b, e) : GradParams<float>(n, c, sums, b, e);
}

}  // namespace HWY_NAMESPACE
}  // namespace mslua
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mslua {

HWY_EXPORT(ForwardOf);
HWY_EXPORT(GradInputOf);
HWY_EXPORT(GradParamsOf);

void RunForward(bool bf16, const RowNorm& n, const RowNormForward& call, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(ForwardOf)(bf16, n, call, begin, end);
}
void RunGradInput(bool bf16, const RowNorm& n, const RowNormBackward& call, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(GradInputOf)(bf16, n, call, begin, end);
}
void RunGradParams(bool bf16, const RowNorm& n, const RowNormBackward& call, float* sums, int64_t begin, int64_t end) {
  HWY_DYNAMIC_DISPATCH(GradParamsOf)(bf16, n, call, sums, begin, end);
}

}  // namespace mslua
#endif  // HWY_ONCE
