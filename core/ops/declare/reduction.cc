#include "core/ops/declare/reduction.h"

#include <algorithm>
#include <limits>
#include <type_traits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/parallel_for.h"
#include "core/base/round_up.h"
#include "core/op/device_text.h"
#include "core/ops/declare/plain_reduction.h"
#include "core/ops/declare/reduction_arithmetic.h"

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

template <Reduction kKind>
HWY_INLINE V32 StartVector() {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  switch (kKind) {
    case Reduction::kSum:
      return hn::Zero(F32());
    case Reduction::kProd:
      return hn::Set(F32(), 1);
    case Reduction::kMax:
      return hn::Set(F32(), -kInfinity);
    case Reduction::kMin:
      return hn::Set(F32(), kInfinity);
  }
}

// As Combine: NaN wins over every number.
template <Reduction kKind>
HWY_INLINE V32 Join(V32 a, V32 b) {
  switch (kKind) {
    case Reduction::kSum:
      return hn::Add(a, b);
    case Reduction::kProd:
      return hn::Mul(a, b);
    case Reduction::kMax:
      return hn::IfThenElse(hn::Or(hn::Gt(a, b), hn::IsNaN(a)), a, b);
    case Reduction::kMin:
      return hn::IfThenElse(hn::Or(hn::Lt(a, b), hn::IsNaN(a)), a, b);
  }
}

// Reduces `rows` rows of C vectors, the last with `last` elements; in stretches of rows, for accuracy.
template <Reduction kKind, int C, class T>
HWY_INLINE void ReduceColumns(const T* x, int64_t rows, int64_t stride, float* results, size_t last) {
  constexpr int64_t kStretch = 256;
  const int64_t lanes = hn::Lanes(F32());
  V32 total[C];  // in registers, as `part`, where all loops over them are unrolled
  HWY_UNROLL(4)
  for (int c = 0; c < C; ++c) total[c] = StartVector<kKind>();
  for (int64_t r0 = 0; r0 < rows; r0 += kStretch) {
    V32 part[C];
    HWY_UNROLL(4)
    for (int c = 0; c < C; ++c) part[c] = StartVector<kKind>();
    for (int64_t r = r0; r < HWY_MIN(rows, r0 + kStretch); ++r) {
      const T* row = x + r * stride;
      HWY_UNROLL(4)
      for (int c = 0; c + 1 < C; ++c) part[c] = Join<kKind>(part[c], Load(row + c * lanes));
      part[C - 1] = Join<kKind>(part[C - 1], LoadN(row + (C - 1) * lanes, last));
    }
    HWY_UNROLL(4)
    for (int c = 0; c < C; ++c) total[c] = Join<kKind>(total[c], part[c]);
  }
  HWY_UNROLL(4)
  for (int c = 0; c + 1 < C; ++c) Store(total[c], results + c * lanes);
  StoreN(total[C - 1], results + (C - 1) * lanes, last);
}

template <Reduction kKind, class T>
void ReduceRowsOf(const T* x, int64_t rows, int64_t stride, int64_t n, float* results) {
  const int64_t lanes = hn::Lanes(F32());
  int64_t c = 0;
  for (; c + 4 * lanes <= n; c += 4 * lanes)
    ReduceColumns<kKind, 4>(x + c, rows, stride, results + c, static_cast<size_t>(lanes));
  ForEachVector(n - c,
                [&](int64_t i, size_t k) { ReduceColumns<kKind, 1>(x + c + i, rows, stride, results + c + i, k); });
}

// The reduction of the lanes of a vector.
template <Reduction kKind>
HWY_INLINE float ReduceLanes(V32 v) {
  if (kKind == Reduction::kSum) return hn::GetLane(hn::SumOfLanes(F32(), v));
  HWY_ALIGN float lanes[HWY_MAX_BYTES / sizeof(float)];
  hn::Store(v, F32(), lanes);
  V32 total = hn::Set(F32(), lanes[0]);
  for (size_t k = 1; k < hn::Lanes(F32()); ++k) total = Join<kKind>(total, hn::Set(F32(), lanes[k]));
  return hn::GetLane(total);
}

// The reduction of a contiguous run; in stretches short enough for f32, whose sums are added in f64.
template <Reduction kKind, class T>
float ReduceRunOf(const T* x, int64_t n) {
  constexpr int64_t kStretch = 4096;
  const int64_t lanes = hn::Lanes(F32());
  V32 total = StartVector<kKind>();
  double sum = 0;
  for (int64_t at = 0; at < n; at += kStretch) {
    const int64_t end = HWY_MIN(n, at + kStretch);
    V32 part[4];
    HWY_UNROLL(4)
    for (int k = 0; k < 4; ++k) part[k] = StartVector<kKind>();
    int64_t i = at;
    for (; i + 4 * lanes <= end; i += 4 * lanes) {
      HWY_UNROLL(4)
      for (int k = 0; k < 4; ++k) part[k] = Join<kKind>(part[k], Load(x + i + k * lanes));
    }
    ForEachVector(end - i, [&](int64_t j, size_t k) {
      V32 v = LoadN(x + i + j, k);
      if (static_cast<int64_t>(k) < lanes) v = hn::IfThenElse(hn::FirstN(F32(), k), v, StartVector<kKind>());
      part[0] = Join<kKind>(part[0], v);
    });
    const V32 all = Join<kKind>(Join<kKind>(part[0], part[1]), Join<kKind>(part[2], part[3]));
    if (kKind == Reduction::kSum) {
      sum += ReduceLanes<kKind>(all);
    } else {
      total = Join<kKind>(total, all);
    }
  }
  if (kKind == Reduction::kSum) return static_cast<float>(sum);
  return ReduceLanes<kKind>(total);
}

template <class T>
void ReduceRows(Reduction kind, const T* x, int64_t rows, int64_t stride, int64_t n, float* results) {
  switch (kind) {
    case Reduction::kSum:
      return ReduceRowsOf<Reduction::kSum>(x, rows, stride, n, results);
    case Reduction::kProd:
      return ReduceRowsOf<Reduction::kProd>(x, rows, stride, n, results);
    case Reduction::kMax:
      return ReduceRowsOf<Reduction::kMax>(x, rows, stride, n, results);
    case Reduction::kMin:
      return ReduceRowsOf<Reduction::kMin>(x, rows, stride, n, results);
  }
}

template <class T>
float ReduceRun(Reduction kind, const T* x, int64_t n) {
  switch (kind) {
    case Reduction::kSum:
      return ReduceRunOf<Reduction::kSum>(x, n);
    case Reduction::kProd:
      return ReduceRunOf<Reduction::kProd>(x, n);
    case Reduction::kMax:
      return ReduceRunOf<Reduction::kMax>(x, n);
    case Reduction::kMin:
      return ReduceRunOf<Reduction::kMin>(x, n);
  }
  __builtin_unreachable();
}

void ReduceRowsF32(Reduction kind, const float* x, int64_t rows, int64_t stride, int64_t n, float* results) {
  ReduceRows(kind, x, rows, stride, n, results);
}
void ReduceRowsBF16(Reduction kind, const BF16* x, int64_t rows, int64_t stride, int64_t n, float* results) {
  ReduceRows(kind, x, rows, stride, n, results);
}
float ReduceRunF32(Reduction kind, const float* x, int64_t n) { return ReduceRun(kind, x, n); }
float ReduceRunBF16(Reduction kind, const BF16* x, int64_t n) { return ReduceRun(kind, x, n); }

}  // namespace HWY_NAMESPACE
}  // namespace mslua
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mslua {

HWY_EXPORT(ReduceRowsF32);
HWY_EXPORT(ReduceRowsBF16);
HWY_EXPORT(ReduceRunF32);
HWY_EXPORT(ReduceRunBF16);

namespace {

// The reduction of `rows` rows of `n` contiguous columns, `stride` apart.
void ReduceRows(Reduction kind, const float* x, int64_t rows, int64_t stride, int64_t n, float* results) {
  HWY_DYNAMIC_DISPATCH(ReduceRowsF32)(kind, x, rows, stride, n, results);
}
void ReduceRows(Reduction kind, const BF16* x, int64_t rows, int64_t stride, int64_t n, float* results) {
  HWY_DYNAMIC_DISPATCH(ReduceRowsBF16)(kind, x, rows, stride, n, results);
}
// The reduction of a contiguous run.
float ReduceRun(Reduction kind, const float* x, int64_t n) { return HWY_DYNAMIC_DISPATCH(ReduceRunF32)(kind, x, n); }
float ReduceRun(Reduction kind, const BF16* x, int64_t n) { return HWY_DYNAMIC_DISPATCH(ReduceRunBF16)(kind, x, n); }

// What the parts of a reduction of T are kept in, and what those are joined in.
template <class T>
constexpr bool kOfVectors = std::is_same_v<T, float> || std::is_same_v<T, BF16>;
template <class T>
using PartOf = std::conditional_t<kOfVectors<T>, float, T>;
template <class T>
using TotalOf = std::conditional_t<kOfVectors<T>, double, T>;

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
      block_ = std::max(kMinBlock, RoundUp(count_ / kMaxBlocks, kMinBlock));
      blocks_ = CeilDiv(count_, block_);
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
      ReduceAll(x, y, static_cast<Part*>(b.scratch));
    } else if (blocks_ > 1) {
      ReduceBlocks(x, y, static_cast<Part*>(b.scratch));
    } else if (inner_ == 1) {
      ParallelFor(outer_, std::max<int64_t>(1, kGrain / std::max<int64_t>(1, count_)), [&](int64_t begin, int64_t end) {
        if constexpr (!std::is_same_v<T, BF16>) {
          if (count_ < kShortRun) return ReduceShortRuns(kKind, x + begin * count_, end - begin, count_, y + begin);
        }
        for (int64_t o = begin; o < end; ++o) y[o] = static_cast<T>(ReduceRun(kKind, x + o * count_, count_));
      });
    } else {
      const int64_t shares = CeilDiv(inner_, kColumns);
      ParallelFor(outer_ * shares,
                  std::max<int64_t>(1, kGrain / std::max<int64_t>(1, count_ * std::min(inner_, kColumns))),
                  [&](int64_t begin, int64_t end) {
                    Part results[kColumns];
                    for (int64_t t = begin; t < end; ++t) {
                      const int64_t o = t / shares, c0 = t % shares * kColumns, n = std::min(kColumns, inner_ - c0);
                      ReduceRows(kKind, x + o * count_ * inner_ + c0, count_, inner_, n, results);
                      for (int64_t c = 0; c < n; ++c) y[o * inner_ + c0 + c] = static_cast<T>(results[c]);
                    }
                  });
    }
    return absl::OkStatus();
  }
  int64_t scratch_bytes() const override {
    if (blocks_ > 1) return blocks_ * inner_ * static_cast<int64_t>(sizeof(Part));
    return inner_ == 1 && outer_ == 1 ? Chunks() * static_cast<int64_t>(sizeof(Part)) : 0;
  }

 private:
  using Part = PartOf<T>;
  // Chunks of fixed size, joined in order: the result does not depend on the threads.
  int64_t Chunks() const { return std::max<int64_t>(1, CeilDiv(count_, kGrain)); }
  void ReduceAll(const T* x, T* y, Part* partial) {
    ParallelFor(Chunks(), 1, [&](int64_t begin, int64_t end) {
      for (int64_t k = begin; k < end; ++k)
        partial[k] = ReduceRun(kKind, x + k * kGrain, std::min(kGrain, count_ - k * kGrain));
    });
    TotalOf<T> total = partial[0];
    for (int64_t k = 1; k < Chunks(); ++k) total = Combine<kKind, TotalOf<T>>(total, partial[k]);
    y[0] = static_cast<T>(total);
  }

  // Blocks of rows, joined in order: a thread reads rows of its own, as it does in chains. They are in its cache.
  void ReduceBlocks(const T* x, T* y, Part* partial) {
    ParallelFor(blocks_, std::max<int64_t>(1, kGrain / (block_ * inner_)), [&](int64_t begin, int64_t end) {
      for (int64_t k = begin; k < end; ++k) {
        const int64_t rows = std::min(block_, count_ - k * block_);
        for (int64_t c = 0; c < inner_; c += kColumns) {
          const int64_t n = std::min(kColumns, inner_ - c);
          ReduceRows(kKind, x + k * block_ * inner_ + c, rows, inner_, n, partial + k * inner_ + c);
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

// A dimension that is walked: its size, and the elements between its neighbours.
struct Walk {
  int64_t size, step;
};

// The offset of place `at` of the product of `walks`, outermost first.
int64_t OffsetOf(const std::vector<Walk>& walks, int64_t at) {
  int64_t offset = 0;
  for (size_t d = walks.size(); d-- > 0;) {
    offset += at % walks[d].size * walks[d].step;
    at /= walks[d].size;
  }
  return offset;
}

int64_t PlacesOf(const std::vector<Walk>& walks) {
  int64_t places = 1;
  for (const Walk& w : walks) places *= w.size;
  return places;
}

// Kept and reduced axes in any order: pieces of memory, each a run to reduce or rows of kept columns, are reduced
// apart, and their results joined in order.
template <Reduction kKind, class T>
class PiecewiseReduction : public Kernel {
 public:
  explicit PiecewiseReduction(const Merged& m) {
    Shape steps = RowMajorStrides(m.sizes);
    size_t outer = m.sizes.size() - 1;
    if (m.reduced[outer]) {
      run_ = m.sizes[outer];
    } else {
      columns_ = m.sizes[outer];
      run_ = m.sizes[--outer];
    }
    for (size_t d = 0; d < outer; ++d) (m.reduced[d] ? pieces_ : kept_).push_back({m.sizes[d], steps[d]});
  }

  Status Run(const Buffers& b) override {
    const T* x = static_cast<const T*>(b.inputs[0]);
    T* y = static_cast<T*>(b.outputs[0]);
    const int64_t shares = CeilDiv(columns_, kColumns), pieces = PlacesOf(pieces_);
    const int64_t work = pieces * run_ * std::min(columns_, kColumns);
    ParallelFor(PlacesOf(kept_) * shares, std::max<int64_t>(1, kGrain / work), [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        const int64_t c0 = t % shares * kColumns, n = std::min(kColumns, columns_ - c0);
        Join(x + OffsetOf(kept_, t / shares) + c0, pieces, n, y + t / shares * columns_ + c0);
      }
    });
    return absl::OkStatus();
  }

 private:
  // Reduces `n` columns of all pieces that belong to one place of the kept dimensions.
  void Join(const T* x, int64_t pieces, int64_t n, T* y) const {
    TotalOf<T> totals[kColumns];
    PartOf<T> part[kColumns];
    std::fill(totals, totals + n, Start<TotalOf<T>>(kKind));
    for (int64_t k = 0; k < pieces; ++k) {
      const T* piece = x + OffsetOf(pieces_, k);
      if (columns_ == 1) {
        part[0] = ReduceRun(kKind, piece, run_);
      } else {
        ReduceRows(kKind, piece, run_, columns_, n, part);
      }
      for (int64_t c = 0; c < n; ++c) totals[c] = Combine<kKind>(totals[c], static_cast<TotalOf<T>>(part[c]));
    }
    for (int64_t c = 0; c < n; ++c) y[c] = static_cast<T>(static_cast<PartOf<T>>(totals[c]));
  }

  std::vector<Walk> kept_, pieces_;  // outside the pieces: places of the result, and pieces that belong to one
  int64_t run_ = 1, columns_ = 1;    // of a piece
};

template <Reduction kKind>
Status ReduceReference(const OpCall& c) {
  const Shape& shape = c.inputs[0].type.shape;
  const Shape kept = ReducedShape(c.attrs, shape, true);
  const Shape strides = RowMajorStrides(kept);
  return DispatchDType(c.inputs[0].type.dtype, [&](auto zero) -> Status {
    using T = decltype(zero);
    constexpr bool kNarrow = sizeof(T) == 2;                        // floats, whose sums may be far from every element
    using C = std::conditional_t<std::is_same_v<T, bool>, uint8_t,  // no bool comes here
                                 std::conditional_t<kNarrow, double, ComputeType<T>>>;
    std::vector<C> sums(NumElements(kept), Start<C>(kKind));
    const T* x = c.inputs[0].as<T>();
    for (int64_t i = 0; i < NumElements(shape); ++i) {
      int64_t rest = i, at = 0;
      for (int64_t d = static_cast<int64_t>(shape.size()) - 1; d >= 0; --d) {
        if (kept[d] != 1) at += rest % shape[d] * strides[d];
        rest /= shape[d];
      }
      sums[at] = static_cast<C>(Combine<kKind>(sums[at], static_cast<C>(static_cast<ComputeType<T>>(x[i]))));
    }
    T* y = c.outputs[0].as<T>();
    for (size_t k = 0; k < sums.size(); ++k) y[k] = static_cast<T>(static_cast<ComputeType<T>>(sums[k]));
    return absl::OkStatus();
  });
}

template <Reduction kKind, class T>
std::unique_ptr<Kernel> MakeReduction(const Merged& m) {
  if (FastReduction<kKind, T>::Supports(m)) return std::make_unique<FastReduction<kKind, T>>(m);
  return std::make_unique<PiecewiseReduction<kKind, T>>(m);
}

template <Reduction kKind>
FastKernel MakeFast() {
  return {"simd",
          [](const OpSpec& s) {
            switch (s.inputs[0].dtype) {
              case DType::kF32:
              case DType::kBF16:
              case DType::kF64:
              case DType::kI32:
              case DType::kI64:
                return s.inputs[0].elements() > 0;
              default:
                return false;
            }
          },
          [](const OpSpec& s) -> StatusOr<std::unique_ptr<Kernel>> {
            const Merged m = Merge(s.attrs, s.inputs[0].shape);
            switch (s.inputs[0].dtype) {
              case DType::kF32:
                return MakeReduction<kKind, float>(m);
              case DType::kBF16:
                return MakeReduction<kKind, BF16>(m);
              case DType::kF64:
                return MakeReduction<kKind, double>(m);
              case DType::kI32:
                return MakeReduction<kKind, int32_t>(m);
              default:
                return MakeReduction<kKind, int64_t>(m);
            }
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
  op.AddSample({{{DType::kF32, {2, 3, 4, 5}}}, {{"axis", std::vector<int64_t>{0, 2}}}, low, 1});
  op.AddSample({{{DType::kF32, {2, 3, 2, 2, 3}}}, {{"axis", std::vector<int64_t>{1, 3}}}, low, 1});
  op.AddSample({{{DType::kF32, {2 * kMinBlock + 10, 3}}}, {{"axis", std::vector<int64_t>{0}}}, low, 1});
  for (const DType t : {DType::kF64, DType::kI32, DType::kI64}) {
    if (kind == Reduction::kProd && t != DType::kF64) continue;  // those of a part wrap round at other places
    op.AddSample({{{t, {7, 130}}}, {{"axis", std::vector<int64_t>{1}}}, low, 1});
    op.AddSample({{{t, {2 * kMinBlock + 10, 3}}}, {{"axis", std::vector<int64_t>{0}}}, low, 1});
    op.AddSample({{{t, {2, 3, 2, 2, 3}}}, {{"axis", std::vector<int64_t>{1, 3}}}, low, 1});
    op.AddSample({{{t, {3, 5}}}, {}, low, 1});
  }
  return op;
}

StatusOr<RowForm> ReductionForm(const OpSpec& spec, const std::string& function) {
  RowFormula f;
  f.shape = spec.inputs[0].shape;
  for (int64_t d = 0; d < spec.inputs[0].rank(); ++d) {
    if (IsReduced(spec.attrs, d)) f.axes.push_back(d);
  }
  f.operands = {{"x"}};
  f.statements = {absl::StrCat("y = ", function, "(x)")};
  f.results = {{"y", true}};
  return FormOf(f, spec);
}

Value BroadcastReduced(GradContext& c, Value reduced) {
  const Shape shape = c.g.TypeOf(c.x(0)).shape;
  return BroadcastTo(c.g, Reshape(c.g, reduced, ReducedShape(c.attrs, shape, true)), shape);
}

Value RootOfSum(GraphBuilder& g, Value sum, double power) {
  const DType dtype = g.TypeOf(sum).dtype;
  // NaN has a root, NaN.
  const Value positive = Elementwise(g, "logical_not", {Elementwise(g, "less_equal", {sum, g.Constant(0, dtype)})});
  const Value safe = Elementwise(g, "select", {positive, sum, g.Constant(1, dtype)});
  const Value root = power == 0.5 ? g.Op("sqrt", {safe}) : Elementwise(g, "pow", {safe, g.Constant(power, dtype)});
  return Elementwise(g, "select", {positive, root, sum});
}

}  // namespace mslua
#endif  // HWY_ONCE
