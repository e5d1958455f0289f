#include <algorithm>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "core/base/parallel_for.h"
#include "core/base/wrapping.h"
#include "core/onnx/lowering.h"
#include "core/op/device_text.h"
#include "core/ops/declare/along_axis.h"
#include "core/ops/declare/scan.h"
#include "core/ops/define.h"

namespace mslua {
namespace {

// Sums along kRows rows of `size` elements side by side, so that no sum waits for the one before it.
template <int kRows, class T>
void SumRows(const T* x, T* y, int64_t size, bool exclusive, bool reverse) {
  using C = ScanType<T>;
  C sums[kRows] = {};
  for (int64_t i = 0; i < size; ++i) {
    const int64_t k = reverse ? size - 1 - i : i;
    C terms[kRows];  // read first: a read waits for a write at the same place of another page
    for (int r = 0; r < kRows; ++r) terms[r] = static_cast<C>(x[r * size + k]);
    for (int r = 0; r < kRows; ++r) {
      const C before = sums[r];
      sums[r] = Plus(before, terms[r]);
      y[r * size + k] = static_cast<T>(exclusive ? before : sums[r]);
    }
  }
}

template <class T>
void Sum(const OpCall& c) {
  using C = ScanType<T>;
  const AxisView v = AxisView::Of(c.inputs[0].type.shape, c.attrs.Int("axis"));
  const bool exclusive = c.attrs.Bool("exclusive"), reverse = c.attrs.Bool("reverse");
  const T* x = c.inputs[0].as<T>();
  T* y = c.outputs[0].as<T>();
  if (v.inner == 1) {
    constexpr int kRows = 2;  // of more, lines of rows and results fall in one set of the cache
    ParallelFor(v.outer, kScanGrain / std::max<int64_t>(1, v.size) + 1, [&](int64_t begin, int64_t end) {
      int64_t row = begin;
      for (; row + kRows <= end; row += kRows)
        SumRows<kRows>(x + row * v.size, y + row * v.size, v.size, exclusive, reverse);
      for (; row < end; ++row) SumRows<1>(x + row * v.size, y + row * v.size, v.size, exclusive, reverse);
    });
    return;
  }
  Scan<T>(v, c.attrs, y, C{}, [x](C before, int64_t i, bool) { return Plus(before, static_cast<C>(x[i])); });
}

}  // namespace

MSLUA_OPERATOR(cumsum) {
  OpDef op("cumsum");
  op.Class("CumSum").Doc(
      "Each element along `axis` becomes the sum of those up to it. Integers keep their "
      "type and wrap round: cast uint8 to int32 first.");
  op.Input("x").NumericTypes();
  op.Attr("axis", AttrKind::kAxis, int64_t{-1}, "the dimension to sum along")
      .Attr("exclusive", AttrKind::kBool, false, "the sum of those before it: the first is 0")
      .Attr("reverse", AttrKind::kBool, false, "from the last one on");
  op.Rule([](const Attrs& a, absl::Span<const TensorType> in) {
    const std::string dims = DimsAlongAxis(a, in[0]);
    return absl::StrCat(dims, "-> ", dims);
  });
  op.Grad([](GradContext& c) -> std::vector<Value> {
    Attrs back = c.attrs;
    back.Set("reverse", !c.attrs.Bool("reverse"));
    return {c.g.Op("cumsum", {c.dy[0]}, back)};
  });
  op.Reference([](const OpCall& c) {
    DispatchDType(c.inputs[0].type.dtype, [&](auto zero) {
      using T = decltype(zero);
      if constexpr (!std::is_same_v<T, bool>) Sum<T>(c);
    });
    return absl::OkStatus();
  });
  op.OnDevice([](const OpSpec& spec) {
    const AxisView v = AxisView::Of(spec.inputs[0].shape, spec.attrs.Int("axis"));
    return OneStep(EachElement(
        v.outer * v.inner,
        absl::StrCat("  typedef ", IsFloat(spec.inputs[0].dtype) ? "double" : DeviceComputeType(spec.inputs[0].dtype),
                     " C;\n", Constant("size", v.size), Constant("inner", v.inner), "  constexpr bool exclusive = ",
                     spec.attrs.Bool("exclusive"), ", reverse = ", spec.attrs.Bool("reverse"), ";\n", R"cuda(
  const i64 first = i / inner * size * inner + i % inner;
  C sum = 0;
  for (i64 k = 0; k < size; ++k) {
    const i64 at = first + (reverse ? size - 1 - k : k) * inner;
    const C term = Get(x0[at]);
    Set(y0[at], exclusive ? sum : sum + term);
    sum += term;
  }
)cuda")));
  });
  op.InPlace(0, 0);
  op.AddSample({{{DType::kF32, {3, 5}}}});
  op.AddSample({{{DType::kF32, {19, 5}}}, {{"exclusive", true}, {"reverse", true}}});
  op.AddSample({{{DType::kF32, {2, 3, 5}}}, {{"axis", int64_t{1}}, {"exclusive", true}}});
  op.AddSample({{{DType::kF32, {4, 3}}}, {{"axis", int64_t{0}}, {"reverse", true}}});
  return {op};
}

MSLUA_ONNX(cumsum) {
  const auto flag = [&](const char* name) { return int64_t{c.attrs().Bool(name) ? 1 : 0}; };
  const std::string axis = c.Tensor({DType::kI64, {}}, [&] {
    const int64_t a = c.attrs().Int("axis");
    return std::string(reinterpret_cast<const char*>(&a), sizeof a);
  }());
  c.Result(c.Op("CumSum", {c.In(0), axis}, {{"exclusive", flag("exclusive")}, {"reverse", flag("reverse")}}));
}

}  // namespace mslua
