#include <algorithm>
#include <numeric>
#include <type_traits>
#include <utility>

#include "absl/base/casts.h"
#include "absl/strings/str_cat.h"
#include "core/base/parallel_for.h"
#include "core/kernels/dispatch.h"
#include "core/kernels/simd/softmax.h"
#include "core/onnx/lowering.h"
#include "core/op/device_text.h"
#include "core/ops/define.h"

namespace mslua {
namespace {

constexpr int64_t kGrain = 4096;  // elements that are worth a thread

// The first outputs[0].shape[axis] elements of each lane in order, and where they were. NaN counts as the largest;
// equal ones keep their order.
template <class T>
void SortLanes(const OpCall& c, bool descending) {
  using C = ComputeType<T>;
  const int64_t axis = c.attrs.Int("axis"), k = c.outputs[0].type.shape[axis];
  const AxisView view = AxisView::Of(c.inputs[0].type.shape, axis);
  const int64_t n = view.size, inner = view.inner;
  const T* x = c.inputs[0].as<T>();
  T* values = c.outputs[0].as<T>();
  int32_t* places = c.outputs[1].as<int32_t>();
  ParallelFor(view.outer * inner, std::max<int64_t>(1, kGrain / std::max<int64_t>(1, n)),
              [&](int64_t begin, int64_t end) {
                std::vector<C> lane(static_cast<size_t>(n));
                std::vector<int32_t> order(static_cast<size_t>(n));
                for (int64_t at = begin; at < end; ++at) {
                  const int64_t o = at / inner, i = at % inner;
                  for (int64_t j = 0; j < n; ++j)
                    lane[static_cast<size_t>(j)] = static_cast<C>(x[(o * n + j) * inner + i]);
                  std::iota(order.begin(), order.end(), 0);
                  const auto before = [&](int32_t a, int32_t b) {
                    const C u = lane[static_cast<size_t>(descending ? b : a)],
                            v = lane[static_cast<size_t>(descending ? a : b)];
                    if (u < v || (u == u && v != v)) return true;
                    if (v < u || (v == v && u != u)) return false;
                    return a < b;
                  };
                  std::partial_sort(order.begin(), order.begin() + k, order.end(), before);
                  for (int64_t j = 0; j < k; ++j) {
                    const int64_t to = (o * k + j) * inner + i;
                    places[to] = order[static_cast<size_t>(j)];
                    values[to] = static_cast<T>(lane[static_cast<size_t>(places[to])]);
                  }
                }
              });
}

// The place of a number in ascending order as an integer: -0 is 0, NaN comes last.
uint32_t KeyOf(float v) {
  if (v != v) return ~0u;
  v += 0.0f;
  const auto bits = absl::bit_cast<uint32_t>(v);
  return bits >> 31 ? ~bits : bits | 1u << 31;
}
uint32_t KeyOf(int32_t v) { return static_cast<uint32_t>(v) ^ 1u << 31; }

// A key and, below it, where the element was: equal elements keep their order.
using Entry = uint64_t;

// Sorts entries that are in the order of their places; `spare` is memory for n more. A pass for each byte of the keys,
// from the last one on; a byte that is the same in all is skipped.
void SortByBytes(Entry* entries, Entry* spare, int64_t n) {
  constexpr int kBytes = 4, kValues = 256;
  int32_t counts[kBytes][kValues] = {};
  for (int64_t j = 0; j < n; ++j) {
    for (int b = 0; b < kBytes; ++b) ++counts[b][entries[j] >> (32 + 8 * b) & 0xff];
  }
  Entry *from = entries, *to = spare;
  for (int b = 0; b < kBytes; ++b) {
    int32_t* places = counts[b];
    if (places[from[0] >> (32 + 8 * b) & 0xff] == n) continue;
    int32_t at = 0;
    for (int v = 0; v < kValues; ++v) at += std::exchange(places[v], at);
    for (int64_t j = 0; j < n; ++j) to[places[from[j] >> (32 + 8 * b) & 0xff]++] = from[j];
    std::swap(from, to);
  }
  if (from != entries) std::copy_n(from, n, entries);
}

// The first k of n entries in order, at their beginning.
void SortFirst(Entry* entries, Entry* spare, int64_t n, int64_t k) {
  constexpr int64_t kFew = 16, kMany = 256;  // measured
  if (k <= kFew && k < n) {
    std::sort(entries, entries + k);
    for (int64_t j = k; j < n; ++j) {
      const Entry e = entries[j];
      if (e > entries[k - 1]) continue;
      int64_t at = k - 1;
      for (; at > 0 && entries[at - 1] > e; --at) entries[at] = entries[at - 1];
      entries[at] = e;
    }
    return;
  }
  if (k >= kMany) return SortByBytes(entries, spare, n);
  if (k < n) std::nth_element(entries, entries + k - 1, entries + n);
  std::sort(entries, entries + k);
}

// What the reference gives, of numbers that 32 bits order.
template <class T>
class KeysKernel : public Kernel {
 public:
  KeysKernel(const OpSpec& s, bool descending)
      : view_(AxisView::Of(s.inputs[0].shape, s.attrs.Int("axis"))),
        k_(s.outputs[0].shape[static_cast<size_t>(s.attrs.Int("axis"))]),
        flip_(descending ? ~0u : 0u),
        lanes_(view_.outer * view_.inner),
        parts_(std::clamp<int64_t>(lanes_ * view_.size / kGrain, 1, std::clamp<int64_t>(lanes_, 1, 64))) {}

  int64_t scratch_bytes() const override { return parts_ * 2 * view_.size * static_cast<int64_t>(sizeof(Entry)); }

  Status Run(const Buffers& b) override {
    const T* x = static_cast<const T*>(b.inputs[0]);
    T* values = static_cast<T*>(b.outputs[0]);
    int32_t* places = static_cast<int32_t*>(b.outputs[1]);
    const int64_t n = view_.size, inner = view_.inner;
    ParallelFor(parts_, 1, [&](int64_t begin, int64_t end) {
      for (int64_t p = begin; p < end; ++p) {
        Entry* entries = static_cast<Entry*>(b.scratch) + p * 2 * n;
        for (int64_t at = lanes_ * p / parts_; at < lanes_ * (p + 1) / parts_; ++at) {
          const T* from = x + at / inner * n * inner + at % inner;
          for (int64_t j = 0; j < n; ++j) {
            const uint32_t key = KeyOf(static_cast<ComputeType<T>>(from[j * inner])) ^ flip_;
            entries[j] = static_cast<Entry>(key) << 32 | static_cast<Entry>(j);
          }
          SortFirst(entries, entries + n, n, k_);
          const int64_t to = at / inner * k_ * inner + at % inner;
          for (int64_t j = 0; j < k_; ++j) {
            const auto place = static_cast<int32_t>(entries[j] & 0xffffffffu);
            places[to + j * inner] = place;
            values[to + j * inner] = from[place * inner];
          }
        }
      }
    });
    return absl::OkStatus();
  }

 private:
  const AxisView view_;
  const int64_t k_;
  const uint32_t flip_;
  const int64_t lanes_, parts_;
};

// `descending` names the attribute that says so.
FastKernel Keys(const char* descending) {
  return {"keys",
          [](const OpSpec& s) {
            const DType t = s.inputs[0].dtype;
            return (t == DType::kF32 || t == DType::kBF16 || t == DType::kF16 || t == DType::kI32) &&
                   s.inputs[0].elements() > 0;
          },
          [descending](const OpSpec& s) -> StatusOr<std::unique_ptr<Kernel>> {
            const bool down = s.attrs.Bool(descending);
            switch (s.inputs[0].dtype) {
              case DType::kF32:
                return std::make_unique<KeysKernel<float>>(s, down);
              case DType::kBF16:
                return std::make_unique<KeysKernel<BF16>>(s, down);
              case DType::kF16:
                return std::make_unique<KeysKernel<F16>>(s, down);
              default:
                return std::make_unique<KeysKernel<int32_t>>(s, down);
            }
          }};
}

// The place of an element is the number of those before it: any number of threads may find it.
DeviceProgram SortOnDevice(const OpSpec& spec, bool descending) {
  const int64_t axis = spec.attrs.Int("axis");
  const AxisView v = AxisView::Of(spec.inputs[0].shape, axis);
  return OneStep(EachElement(
      v.outer * v.inner * v.size,
      absl::StrCat("  typedef ", DeviceComputeType(spec.inputs[0].dtype), " C;\n", Constant("size", v.size),
                   Constant("inner", v.inner), Constant("kept", spec.outputs[0].shape[static_cast<size_t>(axis)]),
                   "  constexpr bool descending = ", descending, ";\n", R"cuda(
  const i64 o = i / (size * inner), c = i % inner, own = i / inner % size;
  const C value = Get(x0[i]);
  i64 place = 0;
  for (i64 k = 0; k < size; ++k) {
    const C other = Get(x0[(o * size + k) * inner + c]);
    const C u = descending ? value : other, v = descending ? other : value;
    const bool less = u < v || (u == u && v != v), more = v < u || (v == v && u != u);
    place += less || (!more && k < own);
  }
  if (place < kept) {
    y0[(o * kept + place) * inner + c] = x0[i];
    y1[(o * kept + place) * inner + c] = (int)own;
  }
)cuda")));
}

Status Sort(const OpCall& c, bool descending) {
  DispatchDType(c.inputs[0].type.dtype, [&](auto zero) {
    using T = decltype(zero);
    if constexpr (!std::is_same_v<T, bool>) SortLanes<T>(c, descending);
  });
  return absl::OkStatus();
}

std::string OrderRule(const Attrs& attrs, absl::Span<const TensorType> in) {
  std::string left, right;
  for (int64_t d = 0; d < in[0].rank(); ++d) {
    const bool sorted = d == attrs.Int("axis");
    absl::StrAppend(&left, sorted ? "!x" : "d", d, " ");
    absl::StrAppend(&right, sorted ? "!y" : "d", d, " ");
  }
  return absl::StrCat(left, "-> ", right, ", ", right);
}

std::vector<Value> OrderGrad(GradContext& c) {
  if (!c.dy[0].valid()) return {Value()};
  const int64_t axis = c.attrs.Int("axis");
  return {c.g.Op("scatter_d", {c.outputs[1], c.dy[0]}, {{"size", c.g.TypeOf(c.x(0)).shape[axis]}, {"axis", axis}})};
}

// An operator of x that gives values and their places.
OpDef OrderOp(std::string name) {
  OpDef op(std::move(name));
  op.Input("x").NumericTypes().Outputs({"values", "indices"});
  op.Rule(OrderRule).Grad(OrderGrad);
  return op;
}

}  // namespace

MSLUA_OPERATOR(sort) {
  OpDef op = OrderOp("sort");
  op.Class("Sort").Doc(
      "The elements of x in order along `axis`, and where each was, counted from 0 (i32). Equal elements keep their "
      "order; NaN counts as the largest number.");
  op.Attr("axis", AttrKind::kAxis, int64_t{-1}, "the dimension to sort along")
      .Attr("descending", AttrKind::kBool, false, "the largest comes first");
  op.Infer([](const Attrs&, absl::Span<const TensorType> in) -> StatusOr<std::vector<TensorType>> {
    return std::vector<TensorType>{in[0], {DType::kI32, in[0].shape}};
  });
  op.Reference([](const OpCall& c) { return Sort(c, c.attrs.Bool("descending")); });
  op.Fast(Keys("descending"));
  op.OnDevice([](const OpSpec& spec) { return SortOnDevice(spec, spec.attrs.Bool("descending")); });
  op.AddSample({{{DType::kF32, {3, 5}}}});
  op.AddSample({{{DType::kF32, {2, 4, 3}}}, {{"axis", int64_t{1}}, {"descending", true}}});

  OpDef top = OrderOp("top_k");
  top.Class("TopK").Doc(
      "The k largest elements of x along `axis`, the largest first, and where each was, counted from 0 (i32). Of equal "
      "elements the first ones are taken; NaN counts as the largest number.");
  top.Required("k", AttrKind::kInt, "how many")
      .Attr("axis", AttrKind::kAxis, int64_t{-1}, "the dimension to search")
      .Attr("largest", AttrKind::kBool, true, "false: the smallest ones, the smallest first");
  top.Check([](const Attrs& a, absl::Span<const TensorType> in) -> Status {
    const int64_t k = a.Int("k"), n = in[0].shape[a.Int("axis")];
    if (k >= 1 && k <= n) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("k is ", k, ", expected 1 to ", n));
  });
  top.Infer([](const Attrs& a, absl::Span<const TensorType> in) -> StatusOr<std::vector<TensorType>> {
    TensorType y = in[0];
    y.shape[a.Int("axis")] = a.Int("k");
    return std::vector<TensorType>{y, {DType::kI32, y.shape}};
  });
  top.Reference([](const OpCall& c) { return Sort(c, c.attrs.Bool("largest")); });
  top.Fast(Keys("largest"));
  top.OnDevice([](const OpSpec& spec) { return SortOnDevice(spec, spec.attrs.Bool("largest")); });
  top.AddSample({{{DType::kF32, {3, 5}}}, {{"k", int64_t{2}}}});
  top.AddSample({{{DType::kF32, {4, 3}}}, {{"k", int64_t{3}}, {"axis", int64_t{0}}, {"largest", false}}});
  top.AddSample({{{DType::kF32, {2, 70}}}, {{"k", int64_t{20}}}});
  return {op, top};
}

static void OnnxTop(onnx::Lowering& c, const std::string& count, bool largest) {
  const auto found =
      c.OpMulti("TopK", {c.In(0), count}, 2,
                {{"axis", c.attrs().Int("axis")}, {"largest", int64_t{largest ? 1 : 0}}, {"sorted", int64_t{1}}});
  c.Result(found[0], 0);
  c.Result(c.Cast(found[1], c.TypeOut(1).dtype), 1);
}
MSLUA_ONNX(sort) {
  const onnx::Dim size = c.DimsOut(0)[static_cast<size_t>(c.attrs().Int("axis"))];
  OnnxTop(c, c.Shape({size}), c.attrs().Bool("descending"));
}
MSLUA_ONNX(top_k) { OnnxTop(c, c.Ints({c.attrs().Int("k")}), c.attrs().Bool("largest")); }

}  // namespace mslua
