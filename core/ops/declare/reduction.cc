#include "core/ops/declare/reduction.h"

#include <algorithm>
#include <limits>
#include <type_traits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/parallel_for.h"
#include "core/op/device_text.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/ops/declare/reduction.cc"
// foreach_target.h first: it includes this file once for each instruction set.
// clang-format off
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "core/kernels/simd/simd-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace mslua {
namespace HWY_NAMESPACE {

// Sums `rows` rows of C vectors, the last with `last` elements; in stretches of rows, for accuracy.
template <int C, class T>
HWY_INLINE void SumColumns(const T* x, int64_t rows, int64_t stride, float* sums, size_t last) {
  constexpr int64_t kStretch = 256;
  const int64_t lanes = hn::Lanes(F32());
  V32 total[C];  // in registers, as `part`, where all loops over them are unrolled
  HWY_UNROLL(4)
  for (int c = 0; c < C; ++c) total[c] = hn::Zero(F32());
  for (int64_t r0 = 0; r0 < rows; r0 += kStretch) {
    V32 part[C];
    HWY_UNROLL(4)
    for (int c = 0; c < C; ++c) part[c] = hn::Zero(F32());
    for (int64_t r = r0; r < HWY_MIN(rows, r0 + kStretch); ++r) {
      const T* row = x + r * stride;
      HWY_UNROLL(4)
      for (int c = 0; c + 1 < C; ++c) part[c] = hn::Add(part[c], Load(row + c * lanes));
      part[C - 1] = hn::Add(part[C - 1], LoadN(row + (C - 1) * lanes, last));
    }
    HWY_UNROLL(4)
    for (int c = 0; c < C; ++c) total[c] = hn::Add(total[c], part[c]);
  }
  HWY_UNROLL(4)
  for (int c = 0; c + 1 < C; ++c) Store(total[c], sums + c * lanes);
  StoreN(total[C - 1], sums + (C - 1) * lanes, last);
}

template <class T>
void SumRows(const T* x, int64_t rows, int64_t stride, int64_t n, float* sums) {
  const int64_t lanes = hn::Lanes(F32());
  int64_t c = 0;
  for (; c + 4 * lanes <= n; c += 4 * lanes) SumColumns<4>(x + c, rows, stride, sums + c, static_cast<size_t>(lanes));
  ForEachVector(n - c, [&](int64_t i, size_t k) { SumColumns<1>(x + c + i, rows, stride, sums + c + i, k); });
}

// The sum of a contiguous run; in stretches short enough for f32.
template <class T>
float SumRun(const T* x, int64_t n) {
  constexpr int64_t kStretch = 4096;
  const int64_t lanes = hn::Lanes(F32());
  V32 total = hn::Zero(F32());
  for (int64_t at = 0; at < n; at += kStretch) {
    const int64_t end = HWY_MIN(n, at + kStretch);
    V32 part[4];
    HWY_UNROLL(4)
    for (int k = 0; k < 4; ++k) part[k] = hn::Zero(F32());
    int64_t i = at;
    for (; i + 4 * lanes <= end; i += 4 * lanes) {
      HWY_UNROLL(4)
      for (int k = 0; k < 4; ++k) part[k] = hn::Add(part[k], Load(x + i + k * lanes));
    }
    ForEachVector(end - i, [&](int64_t j, size_t k) { part[0] = hn::Add(part[0], LoadN(x + i + j, k)); });
    total = hn::Add(total, hn::Add(hn::Add(part[0], part[1]), hn::Add(part[2], part[3])));
  }
  return hn::GetLane(hn::SumOfLanes(F32(), total));
}

void SumRowsF32(const float* x, int64_t rows, int64_t stride, int64_t n, float* sums) {
  SumRows(x, rows, stride, n, sums);
}
void SumRowsBF16(const BF16* x, int64_t rows, int64_t stride, int64_t n, float* sums) {
  SumRows(x, rows, stride, n, sums);
}
float SumRunF32(const float* x, int64_t n) { return SumRun(x, n); }
float SumRunBF16(const BF16* x, int64_t n) { return SumRun(x, n); }

}  // namespace HWY_NAMESPACE
}  // namespace mslua
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mslua {

HWY_EXPORT(SumRowsF32);
HWY_EXPORT(SumRowsBF16);
HWY_EXPORT(SumRunF32);
HWY_EXPORT(SumRunBF16);

namespace {

void VectorSumRows(const float* x, int64_t rows, int64_t stride, int64_t n, float* sums) {
  HWY_DYNAMIC_DISPATCH(SumRowsF32)(x, rows, stride, n, sums);
}
void VectorSumRows(const BF16* x, int64_t rows, int64_t stride, int64_t n, float* sums) {
  HWY_DYNAMIC_DISPATCH(SumRowsBF16)(x, rows, stride, n, sums);
}
float VectorSumRun(const float* x, int64_t n) { return HWY_DYNAMIC_DISPATCH(SumRunF32)(x, n); }
float VectorSumRun(const BF16* x, int64_t n) { return HWY_DYNAMIC_DISPATCH(SumRunBF16)(x, n); }

template <class C>
C Start(Reduction kind) {
  switch (kind) {
    case Reduction::kSum:
      return C{0};
    case Reduction::kProd:
      return C{1};
    case Reduction::kMax:
      return std::numeric_limits<C>::has_infinity ? -std::numeric_limits<C>::infinity()
                                                  : std::numeric_limits<C>::lowest();
    case Reduction::kMin:
      return std::numeric_limits<C>::has_infinity ? std::numeric_limits<C>::infinity() : std::numeric_limits<C>::max();
  }
  __builtin_unreachable();
}

// NaN wins over every number. Integers wrap round, as in all operators.
template <Reduction kKind, class C>
inline C Combine(C a, C b) {
  constexpr bool kWraps = std::is_same_v<C, int32_t> || std::is_same_v<C, int64_t>;
  using Sum = std::conditional_t<kWraps, std::make_unsigned_t<std::conditional_t<kWraps, C, int>>, C>;
  if constexpr (kKind == Reduction::kSum)
    return static_cast<C>(static_cast<Sum>(a) + static_cast<Sum>(b));
  else if constexpr (kKind == Reduction::kProd)
    return static_cast<C>(static_cast<Sum>(a) * static_cast<Sum>(b));
  else if constexpr (kKind == Reduction::kMax)
    return a > b || a != a ? a : b;
  else
    return a < b || a != a ? a : b;
}

// Neighbouring axes of one kind merged: sizes alternate between kept and reduced.
struct Merged {
  Shape sizes;
  std::vector<bool> reduced;
};
Merged Merge(const Attrs& attrs, const Shape& shape) {
  Merged m;
  for (int64_t d = 0; d < static_cast<int64_t>(shape.size()); ++d) {
    if (shape[d] == 1) continue;
    const bool r = IsReduced(attrs, d);
    if (!m.sizes.empty() && m.reduced.back() == r) {
      m.sizes.back() *= shape[d];
    } else {
      m.sizes.push_back(shape[d]);
      m.reduced.push_back(r);
    }
  }
  return m;
}

// The reduction of a contiguous run. 16 lanes that the compiler keeps in vectors, in stretches short enough for f32.
template <Reduction kKind, class T>
float ReduceRun(const T* x, int64_t n) {
  if constexpr (kKind == Reduction::kSum) return VectorSumRun(x, n);
  constexpr int kLanes = 16;
  constexpr int64_t kStretch = 4096;
  float total = Start<float>(kKind);
  for (int64_t at = 0; at < n; at += kStretch) {
    const int64_t count = std::min(kStretch, n - at);
    const T* from = x + at;
    float lanes[kLanes];
    for (float& l : lanes) l = Start<float>(kKind);
    int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes) {
      for (int k = 0; k < kLanes; ++k) lanes[k] = Combine<kKind>(lanes[k], static_cast<float>(from[i + k]));
    }
    for (; i < count; ++i) lanes[i % kLanes] = Combine<kKind>(lanes[i % kLanes], static_cast<float>(from[i]));
    for (int half = kLanes / 2; half > 0; half /= 2) {
      for (int k = 0; k < half; ++k) lanes[k] = Combine<kKind>(lanes[k], lanes[k + half]);
    }
    total = Combine<kKind>(total, lanes[0]);
  }
  return total;
}

// Adds `rows` rows of `n` contiguous columns, `stride` apart, into `sums`; in stretches of rows, for accuracy.
template <Reduction kKind, class T>
void ReduceRows(const T* x, int64_t rows, int64_t stride, int64_t n, float* sums, float* stretch) {
  if constexpr (kKind == Reduction::kSum) return VectorSumRows(x, rows, stride, n, sums);
  constexpr int64_t kStretch = 256;
  for (int64_t r0 = 0; r0 < rows; r0 += kStretch) {
    std::fill(stretch, stretch + n, Start<float>(kKind));
    for (int64_t r = r0; r < std::min(rows, r0 + kStretch); ++r) {
      const T* row = x + r * stride;
      for (int64_t c = 0; c < n; ++c) stretch[c] = Combine<kKind>(stretch[c], static_cast<float>(row[c]));
    }
    for (int64_t c = 0; c < n; ++c) sums[c] = Combine<kKind>(sums[c], stretch[c]);
  }
}

constexpr int64_t kColumns = 256;  // columns of one share of work
constexpr int64_t kGrain = 32768;  // elements that are worth a thread
// Rows that are reduced apart, and then their results; not fewer rows, not more results.
constexpr int64_t kMinBlock = 64, kMaxBlocks = 64;

// Kept and reduced axes in the forms that occur: (kept) reduced | (kept) reduced kept | kept, at most.
template <Reduction kKind, class T>
class FastReduction : public Kernel {
 public:
  explicit FastReduction(const Merged& m) {
    size_t at = 0;
    if (at < m.sizes.size() && !m.reduced[at]) outer_ = m.sizes[at++];
    if (at < m.sizes.size()) count_ = m.sizes[at++];
    if (at < m.sizes.size()) inner_ = m.sizes[at++];
    if (outer_ == 1 && inner_ > 1) {
      block_ = std::max(kMinBlock, (count_ / kMaxBlocks + kMinBlock - 1) / kMinBlock * kMinBlock);
      blocks_ = (count_ + block_ - 1) / block_;
    }
  }
  static bool Supports(const Merged& m) {
    const size_t lead = !m.reduced.empty() && !m.reduced[0] ? 1 : 0;
    return m.sizes.size() <= lead + 2;
  }

  Status Run(const Buffers& b) override {
    const T* x = static_cast<const T*>(b.inputs[0]);
    T* y = static_cast<T*>(b.outputs[0]);
    if (inner_ == 1 && outer_ == 1) {
      ReduceAll(x, y, static_cast<float*>(b.scratch));
    } else if (blocks_ > 1) {
      ReduceBlocks(x, y, static_cast<float*>(b.scratch));
    } else if (inner_ == 1) {
      ParallelFor(outer_, std::max<int64_t>(1, kGrain / std::max<int64_t>(1, count_)), [&](int64_t begin, int64_t end) {
        for (int64_t o = begin; o < end; ++o) y[o] = static_cast<T>(ReduceRun<kKind>(x + o * count_, count_));
      });
    } else {
      const int64_t shares = (inner_ + kColumns - 1) / kColumns;
      ParallelFor(outer_ * shares,
                  std::max<int64_t>(1, kGrain / std::max<int64_t>(1, count_ * std::min(inner_, kColumns))),
                  [&](int64_t begin, int64_t end) {
                    float sums[kColumns], stretch[kColumns];
                    for (int64_t t = begin; t < end; ++t) {
                      const int64_t o = t / shares, c0 = t % shares * kColumns, n = std::min(kColumns, inner_ - c0);
                      std::fill(sums, sums + n, Start<float>(kKind));
                      ReduceRows<kKind>(x + o * count_ * inner_ + c0, count_, inner_, n, sums, stretch);
                      for (int64_t c = 0; c < n; ++c) y[o * inner_ + c0 + c] = static_cast<T>(sums[c]);
                    }
                  });
    }
    return absl::OkStatus();
  }
  int64_t scratch_bytes() const override {
    if (blocks_ > 1) return blocks_ * inner_ * static_cast<int64_t>(sizeof(float));
    return inner_ == 1 && outer_ == 1 ? Chunks() * static_cast<int64_t>(sizeof(float)) : 0;
  }

 private:
  // Chunks of fixed size, joined in order: the result does not depend on the threads.
  int64_t Chunks() const { return std::max<int64_t>(1, (count_ + kGrain - 1) / kGrain); }
  void ReduceAll(const T* x, T* y, float* partial) {
    ParallelFor(Chunks(), 1, [&](int64_t begin, int64_t end) {
      for (int64_t k = begin; k < end; ++k)
        partial[k] = ReduceRun<kKind>(x + k * kGrain, std::min(kGrain, count_ - k * kGrain));
    });
    float total = partial[0];
    for (int64_t k = 1; k < Chunks(); ++k) total = Combine<kKind>(total, partial[k]);
    y[0] = static_cast<T>(total);
  }

  // Blocks of rows, joined in order: a thread reads rows of its own, as it does in chains. They are in its cache.
  void ReduceBlocks(const T* x, T* y, float* partial) {
    ParallelFor(blocks_, std::max<int64_t>(1, kGrain / (block_ * inner_)), [&](int64_t begin, int64_t end) {
      float stretch[kColumns];
      for (int64_t k = begin; k < end; ++k) {
        const int64_t rows = std::min(block_, count_ - k * block_);
        float* sums = partial + k * inner_;
        std::fill(sums, sums + inner_, Start<float>(kKind));
        for (int64_t c = 0; c < inner_; c += kColumns) {
          const int64_t n = std::min(kColumns, inner_ - c);
          ReduceRows<kKind>(x + k * block_ * inner_ + c, rows, inner_, n, sums + c, stretch);
        }
      }
    });
    ParallelFor(inner_, std::max<int64_t>(1, kGrain / blocks_), [&](int64_t begin, int64_t end) {
      for (int64_t k = 1; k < blocks_; ++k) {
        for (int64_t c = begin; c < end; ++c) partial[c] = Combine<kKind>(partial[c], partial[k * inner_ + c]);
      }
      for (int64_t c = begin; c < end; ++c) y[c] = static_cast<T>(partial[c]);
    });
  }

  int64_t outer_ = 1, count_ = 1, inner_ = 1;
  int64_t block_ = 0, blocks_ = 1;  // rows of a block, where rows are reduced alone
};

template <Reduction kKind>
Status ReduceReference(const OpCall& c) {
  const Shape& shape = c.inputs[0].type.shape;
  const Shape kept = ReducedShape(c.attrs, shape, true);
  const Shape strides = RowMajorStrides(kept);
  return DispatchDType(c.inputs[0].type.dtype, [&](auto zero) -> Status {
    using T = decltype(zero);
    using C = std::conditional_t<std::is_same_v<T, bool>, uint8_t, ComputeType<T>>;  // no bool comes here
    std::vector<C> sums(NumElements(kept), Start<C>(kKind));
    const T* x = c.inputs[0].as<T>();
    for (int64_t i = 0; i < NumElements(shape); ++i) {
      int64_t rest = i, at = 0;
      for (int64_t d = static_cast<int64_t>(shape.size()) - 1; d >= 0; --d) {
        if (kept[d] != 1) at += rest % shape[d] * strides[d];
        rest /= shape[d];
      }
      sums[at] = static_cast<C>(Combine<kKind>(sums[at], static_cast<C>(x[i])));
    }
    T* y = c.outputs[0].as<T>();
    for (size_t k = 0; k < sums.size(); ++k) y[k] = static_cast<T>(sums[k]);
    return absl::OkStatus();
  });
}

template <Reduction kKind>
FastKernel MakeFast() {
  return {"simd",
          [](const OpSpec& s) {
            const DType t = s.inputs[0].dtype;
            return (t == DType::kF32 || t == DType::kBF16) &&
                   FastReduction<kKind, float>::Supports(Merge(s.attrs, s.inputs[0].shape)) &&
                   s.inputs[0].elements() > 0;
          },
          [](const OpSpec& s) -> StatusOr<std::unique_ptr<Kernel>> {
            const Merged m = Merge(s.attrs, s.inputs[0].shape);
            if (s.inputs[0].dtype == DType::kF32) return std::unique_ptr<Kernel>(new FastReduction<kKind, float>(m));
            return std::unique_ptr<Kernel>(new FastReduction<kKind, BF16>(m));
          }};
}

// Kept axes keep their factor; reduced ones vanish, or become 1.
std::string ReductionRule(const Attrs& attrs, absl::Span<const TensorType> in, Reduction kind) {
  std::string left, right;
  for (int64_t d = 0; d < in[0].rank(); ++d) {
    absl::StrAppend(&left, "d", d, " ");
    if (!IsReduced(attrs, d))
      absl::StrAppend(&right, "d", d, " ");
    else if (attrs.Bool("keep_dims"))
      absl::StrAppend(&right, "1 ");
  }
  return absl::StrCat(left, "-> ", right, "{", Name(kind), "}");
}

DeviceProgram ReduceOnDevice(const OpSpec& spec, Reduction kind) {
  const Shape& shape = spec.inputs[0].shape;
  std::vector<bool> reduced(shape.size());
  for (size_t d = 0; d < shape.size(); ++d) reduced[d] = IsReduced(spec.attrs, static_cast<int64_t>(d));
  const ReducedIndex at = DeviceReducedIndex(shape, reduced);
  DeviceReduction r;
  r.outputs = at.outputs;
  r.length = at.length;
  r.adjacent = at.adjacent;
  r.type = DeviceComputeType(spec.inputs[0].dtype);
  r.joins = kind == Reduction::kSum ? "+" : kind == Reduction::kProd ? "*" : kind == Reduction::kMax ? "M" : "m";
  r.element = absl::StrCat("    const C a0 = (C)Get(x0[", at.row, " + ", at.k, "]);");
  r.finish = "  Set(y0[row], t0);";
  return DeviceReduce(r);
}

template <Reduction kKind>
void AddKernels(OpDef& op) {
  op.Reference(ReduceReference<kKind>).Fast(MakeFast<kKind>());
  op.OnDevice([](const OpSpec& spec) { return ReduceOnDevice(spec, kKind); });
}

}  // namespace

bool IsReduced(const Attrs& attrs, int64_t d) {
  const auto& axes = attrs.Ints("axis");
  return axes.empty() || std::find(axes.begin(), axes.end(), d) != axes.end();
}

Shape ReducedShape(const Attrs& attrs, const Shape& shape, bool keep_dims) {
  Shape out;
  for (int64_t d = 0; d < static_cast<int64_t>(shape.size()); ++d) {
    if (!IsReduced(attrs, d))
      out.push_back(shape[d]);
    else if (keep_dims)
      out.push_back(1);
  }
  return out;
}

OpDef ReductionOp(std::string name, Reduction kind) {
  OpDef op(std::move(name));
  op.Input("x").NumericTypes();
  op.Attr("axis", AttrKind::kAxes, std::vector<int64_t>{}, "the axes to reduce; none: all")
      .Attr("keep_dims", AttrKind::kBool, false, "reduced axes stay, with size 1");
  op.Rule([kind](const Attrs& a, absl::Span<const TensorType> in) { return ReductionRule(a, in, kind); });
  op.Flops([](const Attrs&, absl::Span<const TensorType> in, absl::Span<const TensorType>) {
    return static_cast<double>(in[0].elements());
  });
  switch (kind) {
    case Reduction::kSum:
      AddKernels<Reduction::kSum>(op);
      break;
    case Reduction::kMax:
      AddKernels<Reduction::kMax>(op);
      break;
    case Reduction::kMin:
      AddKernels<Reduction::kMin>(op);
      break;
    case Reduction::kProd:
      AddKernels<Reduction::kProd>(op);
      break;
  }
  const double low = kind == Reduction::kProd ? 0.5 : -1;
  op.AddSample({{{DType::kF32, {3, 5}}}, {}, low, 1});
  op.AddSample({{{DType::kF32, {3, 5}}}, {{"axis", std::vector<int64_t>{1}}}, low, 1});
  op.AddSample({{{DType::kF32, {2, 3, 5}}}, {{"axis", std::vector<int64_t>{1}}, {"keep_dims", true}}, low, 1});
  op.AddSample({{{DType::kF32, {2, 3, 4, 5}}}, {{"axis", std::vector<int64_t>{0, 2, 3}}}, low, 1});
  op.AddSample({{{DType::kF32, {2 * kMinBlock + 10, 3}}}, {{"axis", std::vector<int64_t>{0}}}, low, 1});
  return op;
}

Value BroadcastReduced(GradContext& c, Value reduced) {
  const Shape shape = c.g.TypeOf(c.x(0)).shape;
  return BroadcastTo(c.g, Reshape(c.g, reduced, ReducedShape(c.attrs, shape, true)), shape);
}

Value RootOfSum(GraphBuilder& g, Value sum, double power) {
  const DType dtype = g.TypeOf(sum).dtype;
  const Value positive = Elementwise(g, "greater", {sum, g.Constant(0, dtype)});
  const Value safe = Elementwise(g, "select", {positive, sum, g.Constant(1, dtype)});
  const Value root = power == 0.5 ? g.Op("sqrt", {safe}) : Elementwise(g, "pow", {safe, g.Constant(power, dtype)});
  return Elementwise(g, "select", {positive, root, sum});
}

}  // namespace mslua
#endif  // HWY_ONCE
