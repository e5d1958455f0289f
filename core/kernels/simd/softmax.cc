#include "core/kernels/simd/softmax.h"

#include <cmath>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "core/base/parallel_for.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/kernels/simd/softmax.cc"
// foreach_target.h first: it includes this file once for each instruction set.
// clang-format off
#include "core/base/round_up.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "core/kernels/simd/math-inl.h"
#include "core/kernels/simd/simd-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace mslua {
namespace HWY_NAMESPACE {

// `v` with `rest` in the lanes from n on.
HWY_INLINE V32 Pad(V32 v, size_t n, float rest) {
  const F32 d;
  return n == hn::Lanes(d) ? v : hn::IfThenElse(hn::FirstN(d, n), v, hn::Set(d, rest));
}

template <class T>
HWY_INLINE float MaxOf(const T* x, int64_t size) {
  const F32 d;
  V32 best = hn::Set(d, -INFINITY);
  ForEachVector(size, [&](int64_t i, size_t n) { best = hn::Max(best, Pad(LoadN(x + i, n), n, -INFINITY)); });
  return hn::GetLane(hn::MaxOfLanes(d, best));
}

template <class T>
HWY_INLINE float SumOfExp(const T* x, int64_t size, float shift) {
  const F32 d;
  V32 sum = hn::Zero(d);
  ForEachVector(size, [&](int64_t i, size_t n) {
    sum = hn::Add(sum, Exp(hn::Sub(Pad(LoadN(x + i, n), n, -INFINITY), hn::Set(d, shift))));
  });
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

// The sum of shift - x.
template <class T>
HWY_INLINE float SumBelow(const T* x, int64_t size, float shift) {
  const F32 d;
  const V32 from = hn::Set(d, shift);
  V32 sum = hn::Zero(d);
  ForEachVector(size, [&](int64_t i, size_t n) { sum = hn::Add(sum, Pad(hn::Sub(from, LoadN(x + i, n)), n, 0)); });
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

// Rows [begin, end) of [rows, size].
template <class T>
void Softmax(bool log, const T* x, T* y, int64_t size, int64_t begin, int64_t end) {
  const F32 d;
  for (int64_t r = begin; r < end; ++r) {
    const T* in = x + r * size;
    T* out = y + r * size;
    const float max = MaxOf(in, size), sum = SumOfExp(in, size, max);
    if (log) {
      // First x - max, which is exact where results are near 0: the logarithm would be lost in a large maximum.
      const V32 shift = hn::Set(d, max), log_sum = hn::Set(d, std::log(sum));
      ForEachVector(
          size, [&](int64_t i, size_t n) { StoreN(hn::Sub(hn::Sub(LoadN(in + i, n), shift), log_sum), out + i, n); });
    } else {
      const V32 shift = hn::Set(d, max), scale = hn::Set(d, 1 / sum);
      ForEachVector(size, [&](int64_t i, size_t n) {
        StoreN(hn::Mul(Exp(hn::Sub(LoadN(in + i, n), shift)), scale), out + i, n);
      });
    }
  }
}

// The columns [0, n) of [size, stride], n at most kSoftmaxColumns, each by itself.
template <class T>
void SoftmaxColumns(bool log, const T* x, T* y, int64_t size, int64_t stride, int64_t n) {
  const F32 d;
  float max[kSoftmaxColumns], sum[kSoftmaxColumns];
  ForEachVector(n, [&](int64_t c, size_t k) {
    V32 best = hn::Set(d, -INFINITY);
    for (int64_t i = 0; i < size; ++i) best = hn::Max(best, LoadN(x + i * stride + c, k));
    V32 total = hn::Zero(d);
    for (int64_t i = 0; i < size; ++i) total = hn::Add(total, Exp(hn::Sub(LoadN(x + i * stride + c, k), best)));
    StoreN(best, max + c, k);
    StoreN(total, sum + c, k);
  });
  for (int64_t c = 0; c < n; ++c) sum[c] = log ? std::log(sum[c]) : 1 / sum[c];
  for (int64_t i = 0; i < size; ++i) {
    ForEachVector(n, [&](int64_t c, size_t k) {
      const V32 below = hn::Sub(LoadN(x + i * stride + c, k), LoadN(max + c, k)), rest = LoadN(sum + c, k);
      StoreN(log ? hn::Sub(below, rest) : hn::Mul(Exp(below), rest), y + i * stride + c, k);
    });
  }
}

template <class T>
void LogSumExp(const T* x, float* lse, float* low, int64_t size, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r) {
    const float max = MaxOf(x + r * size, size);
    const TwoParts<float> sum = ExactSum(max, std::log(SumOfExp(x + r * size, size, max)));
    lse[r] = sum.high;
    low[r] = sum.low;
  }
}

// dx = (exp(x - lse - low) - each) * scale, for one row.
template <class T>
void ScaledSoftmax(const T* x, float lse, float low, float each, float scale, T* dx, int64_t size) {
  const F32 d;
  const V32 shift = hn::Set(d, lse), rest = hn::Set(d, low), e = hn::Set(d, each), s = hn::Set(d, scale);
  ForEachVector(size, [&](int64_t i, size_t n) {
    StoreN(hn::Mul(hn::Sub(Exp(hn::Sub(hn::Sub(LoadN(x + i, n), shift), rest)), e), s), dx + i, n);
  });
}

void SoftmaxF32(bool log, const float* x, float* y, int64_t size, int64_t begin, int64_t end) {
  Softmax(log, x, y, size, begin, end);
}
void SoftmaxBF16(bool log, const BF16* x, BF16* y, int64_t size, int64_t begin, int64_t end) {
  Softmax(log, x, y, size, begin, end);
}
void SoftmaxColumnsF32(bool log, const float* x, float* y, int64_t size, int64_t stride, int64_t n) {
  SoftmaxColumns(log, x, y, size, stride, n);
}
void SoftmaxColumnsBF16(bool log, const BF16* x, BF16* y, int64_t size, int64_t stride, int64_t n) {
  SoftmaxColumns(log, x, y, size, stride, n);
}
void LogSumExpF32(const float* x, float* lse, float* low, int64_t size, int64_t begin, int64_t end) {
  LogSumExp(x, lse, low, size, begin, end);
}
void LogSumExpBF16(const BF16* x, float* lse, float* low, int64_t size, int64_t begin, int64_t end) {
  LogSumExp(x, lse, low, size, begin, end);
}
void ScaledSoftmaxF32(const float* x, float lse, float low, float each, float scale, float* dx, int64_t size) {
  ScaledSoftmax(x, lse, low, each, scale, dx, size);
}
void ScaledSoftmaxBF16(const BF16* x, float lse, float low, float each, float scale, BF16* dx, int64_t size) {
  ScaledSoftmax(x, lse, low, each, scale, dx, size);
}
float SumBelowF32(const float* x, int64_t size, float shift) { return SumBelow(x, size, shift); }
float SumBelowBF16(const BF16* x, int64_t size, float shift) { return SumBelow(x, size, shift); }

}  // namespace HWY_NAMESPACE
}  // namespace mslua
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mslua {

HWY_EXPORT(SoftmaxF32);
HWY_EXPORT(SoftmaxBF16);
HWY_EXPORT(SoftmaxColumnsF32);
HWY_EXPORT(SoftmaxColumnsBF16);
HWY_EXPORT(LogSumExpF32);
HWY_EXPORT(LogSumExpBF16);
HWY_EXPORT(ScaledSoftmaxF32);
HWY_EXPORT(ScaledSoftmaxBF16);
HWY_EXPORT(SumBelowF32);
HWY_EXPORT(SumBelowBF16);

namespace {

constexpr int64_t kGrain = 8 * 1024;  // elements below which one thread does all

void Rows(bool log, const float* x, float* y, int64_t size, int64_t b, int64_t e) {
  HWY_DYNAMIC_DISPATCH(SoftmaxF32)(log, x, y, size, b, e);
}
void Rows(bool log, const BF16* x, BF16* y, int64_t size, int64_t b, int64_t e) {
  HWY_DYNAMIC_DISPATCH(SoftmaxBF16)(log, x, y, size, b, e);
}
void Columns(bool log, const float* x, float* y, int64_t size, int64_t stride, int64_t n) {
  HWY_DYNAMIC_DISPATCH(SoftmaxColumnsF32)(log, x, y, size, stride, n);
}
void Columns(bool log, const BF16* x, BF16* y, int64_t size, int64_t stride, int64_t n) {
  HWY_DYNAMIC_DISPATCH(SoftmaxColumnsBF16)(log, x, y, size, stride, n);
}
void RowsLse(const float* x, float* lse, float* low, int64_t size, int64_t b, int64_t e) {
  HWY_DYNAMIC_DISPATCH(LogSumExpF32)(x, lse, low, size, b, e);
}
void RowsLse(const BF16* x, float* lse, float* low, int64_t size, int64_t b, int64_t e) {
  HWY_DYNAMIC_DISPATCH(LogSumExpBF16)(x, lse, low, size, b, e);
}
void RowGrad(const float* x, float lse, float low, float each, float scale, float* dx, int64_t size) {
  HWY_DYNAMIC_DISPATCH(ScaledSoftmaxF32)(x, lse, low, each, scale, dx, size);
}
void RowGrad(const BF16* x, float lse, float low, float each, float scale, BF16* dx, int64_t size) {
  HWY_DYNAMIC_DISPATCH(ScaledSoftmaxBF16)(x, lse, low, each, scale, dx, size);
}
float RowBelow(const float* x, int64_t size, float shift) { return HWY_DYNAMIC_DISPATCH(SumBelowF32)(x, size, shift); }
float RowBelow(const BF16* x, int64_t size, float shift) { return HWY_DYNAMIC_DISPATCH(SumBelowBF16)(x, size, shift); }

int64_t LabelAt(DType t, const void* labels, int64_t i) {
  return t == DType::kI32 ? static_cast<const int32_t*>(labels)[i] : static_cast<const int64_t*>(labels)[i];
}

template <class T>
class SoftmaxKernel : public Kernel {
 public:
  SoftmaxKernel(int64_t rows, int64_t size, bool log) : rows_(rows), size_(size), log_(log) {}
  Status Run(const Buffers& b) override {
    ParallelFor(rows_, kGrain / (size_ + 1) + 1, [&](int64_t begin, int64_t end) {
      Rows(log_, static_cast<const T*>(b.inputs[0]), static_cast<T*>(b.outputs[0]), size_, begin, end);
    });
    return absl::OkStatus();
  }

 private:
  const int64_t rows_, size_;
  const bool log_;
};

// Along an axis whose elements do not lie side by side.
template <class T>
class SoftmaxColumnsKernel : public Kernel {
 public:
  SoftmaxColumnsKernel(const AxisView& v, bool log) : v_(v), log_(log) {}
  Status Run(const Buffers& b) override {
    const int64_t shares = CeilDiv(v_.inner, kSoftmaxColumns);
    const int64_t work = v_.size * std::min(v_.inner, kSoftmaxColumns);
    ParallelFor(v_.outer * shares, kGrain / (work + 1) + 1, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        const int64_t c = t % shares * kSoftmaxColumns, at = t / shares * v_.size * v_.inner + c;
        Columns(log_, static_cast<const T*>(b.inputs[0]) + at, static_cast<T*>(b.outputs[0]) + at, v_.size, v_.inner,
                std::min(kSoftmaxColumns, v_.inner - c));
      }
    });
    return absl::OkStatus();
  }

 private:
  const AxisView v_;
  const bool log_;
};

template <class T>
std::unique_ptr<Kernel> MakeSoftmax(const AxisView& v, bool log) {
  if (v.inner == 1) return std::make_unique<SoftmaxKernel<T>>(v.outer, v.size, log);
  return std::make_unique<SoftmaxColumnsKernel<T>>(v, log);
}

struct CrossEntropySizes {
  int64_t records, classes, ignore;
  DType labels;
  float each;  // of the label, what smoothing gives to each class

  static CrossEntropySizes Of(const OpSpec& s) {
    const int64_t classes = s.inputs[0].shape.back();
    return {s.inputs[1].elements(), classes, s.attrs.Int("ignore_index"), s.inputs[1].dtype,
            static_cast<float>(s.attrs.Float("label_smoothing") / static_cast<double>(classes))};
  }
};

template <class T>
class CrossEntropyKernel : public Kernel {
 public:
  explicit CrossEntropyKernel(const CrossEntropySizes& s) : s_(s) {}
  Status Run(const Buffers& b) override {
    RETURN_IF_ERROR(CheckLabels(s_.labels, b.inputs[1], s_.records, s_.classes, s_.ignore));
    const T* x = static_cast<const T*>(b.inputs[0]);
    float *loss = static_cast<float*>(b.outputs[0]), *lse = static_cast<float*>(b.outputs[1]),
          *low = static_cast<float*>(b.outputs[2]);
    ParallelFor(s_.records, kGrain / (s_.classes + 1) + 1, [&](int64_t begin, int64_t end) {
      RowsLse(x, lse, low, s_.classes, begin, end);
      for (int64_t i = begin; i < end; ++i) {
        const int64_t label = LabelAt(s_.labels, b.inputs[1], i);
        const T* row = x + i * s_.classes;
        loss[i] = label == s_.ignore ? 0 : lse[i] - static_cast<float>(row[label]) + low[i];
        if (label != s_.ignore && s_.each > 0)
          loss[i] += RowBelow(row, s_.classes, static_cast<float>(row[label])) * s_.each;
      }
    });
    return absl::OkStatus();
  }

 private:
  const CrossEntropySizes s_;
};

template <class T>
class CrossEntropyGradKernel : public Kernel {
 public:
  explicit CrossEntropyGradKernel(const CrossEntropySizes& s) : s_(s) {}
  Status Run(const Buffers& b) override {
    RETURN_IF_ERROR(CheckLabels(s_.labels, b.inputs[1], s_.records, s_.classes, s_.ignore));
    const T* x = static_cast<const T*>(b.inputs[0]);
    const float *lse = static_cast<const float*>(b.inputs[2]), *low = static_cast<const float*>(b.inputs[3]),
                *dloss = static_cast<const float*>(b.inputs[4]);
    T* dx = static_cast<T*>(b.outputs[0]);
    const float of_label = 1 - s_.each * static_cast<float>(s_.classes - 1);
    ParallelFor(s_.records, kGrain / (s_.classes + 1) + 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t label = LabelAt(s_.labels, b.inputs[1], i);
        const float scale = label == s_.ignore ? 0 : dloss[i];
        // Where dx is x's own memory the label's logit is gone after the row.
        const int64_t at = i * s_.classes + (label == s_.ignore ? 0 : label);
        const float p = std::exp(static_cast<float>(x[at]) - lse[i] - low[i]);
        RowGrad(x + i * s_.classes, lse[i], low[i], s_.each, scale, dx + i * s_.classes, s_.classes);
        if (label != s_.ignore) dx[at] = static_cast<T>((p - of_label) * scale);
      }
    });
    return absl::OkStatus();
  }

 private:
  const CrossEntropySizes s_;
};

bool IsVectorType(DType t) { return t == DType::kF32 || t == DType::kBF16; }

template <template <class> class K>
FastKernel CrossEntropyWith() {
  return {"highway", [](const OpSpec& s) { return IsVectorType(s.inputs[0].dtype); },
          [](const OpSpec& s) -> StatusOr<std::unique_ptr<Kernel>> {
            if (s.inputs[0].dtype == DType::kF32) return std::make_unique<K<float>>(CrossEntropySizes::Of(s));
            return std::make_unique<K<BF16>>(CrossEntropySizes::Of(s));
          }};
}

}  // namespace

AxisView AxisView::Of(const Shape& shape, int64_t axis) {
  const auto dims = absl::MakeConstSpan(shape);
  return {NumElements(dims.subspan(0, axis)), shape[axis], NumElements(dims.subspan(axis + 1))};
}

Status WrongLabel(int64_t i, int64_t records, int64_t label, int64_t classes) {
  Status bad = absl::DataLossError(absl::StrCat("the label of record ", i + 1, " is ", label, ", expected 0 to ",
                                                classes - 1, " for ", classes, " classes"));
  // For data::NameSample, which knows the sample.
  bad.SetPayload("mslua/record", absl::Cord(absl::StrCat(i, " ", records, " ", label)));
  return bad;
}

Status CheckLabels(DType type, const void* labels, int64_t records, int64_t classes, int64_t ignore) {
  for (int64_t i = 0; i < records; ++i) {
    const int64_t label = LabelAt(type, labels, i);
    if ((label < 0 || label >= classes) && label != ignore) return WrongLabel(i, records, label, classes);
  }
  return absl::OkStatus();
}

FastKernel HighwaySoftmax(bool log) {
  return {"highway", [](const OpSpec& s) { return IsVectorType(s.inputs[0].dtype) && s.inputs[0].elements() > 0; },
          [log](const OpSpec& s) -> StatusOr<std::unique_ptr<Kernel>> {
            const AxisView v = AxisView::Of(s.inputs[0].shape, s.attrs.Int("axis"));
            if (s.inputs[0].dtype == DType::kF32) return MakeSoftmax<float>(v, log);
            return MakeSoftmax<BF16>(v, log);
          }};
}

FastKernel HighwaySparseCrossEntropy() { return CrossEntropyWith<CrossEntropyKernel>(); }
FastKernel HighwaySparseCrossEntropyGrad() { return CrossEntropyWith<CrossEntropyGradKernel>(); }

}  // namespace mslua
#endif  // HWY_ONCE
