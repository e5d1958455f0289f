#include <algorithm>
#include <numeric>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "core/base/parallel_for.h"
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
  op.Check([](const Attrs&, absl::Span<const TensorType> in) -> Status {
    return in[0].rank() > 0 ? absl::OkStatus() : absl::InvalidArgumentError("x should have at least 1 dimension");
  });
  op.Infer([](const Attrs&, absl::Span<const TensorType> in) -> StatusOr<std::vector<TensorType>> {
    return std::vector<TensorType>{in[0], {DType::kI32, in[0].shape}};
  });
  op.Reference([](const OpCall& c) { return Sort(c, c.attrs.Bool("descending")); });
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
    if (in[0].rank() == 0) return absl::InvalidArgumentError("x should have at least 1 dimension");
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
  top.OnDevice([](const OpSpec& spec) { return SortOnDevice(spec, spec.attrs.Bool("largest")); });
  top.AddSample({{{DType::kF32, {3, 5}}}, {{"k", int64_t{2}}}});
  top.AddSample({{{DType::kF32, {4, 3}}}, {{"k", int64_t{3}}, {"axis", int64_t{0}}, {"largest", false}}});
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
