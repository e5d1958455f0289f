#include <type_traits>

#include "absl/strings/str_cat.h"
#include "core/base/parallel_for.h"
#include "core/kernels/simd/softmax.h"
#include "core/onnx/lowering.h"
#include "core/op/device_text.h"
#include "core/ops/define.h"

namespace mslua {
namespace {

// The first place of the extreme along the axis; NaN counts as the extreme, as in NumPy.
template <bool kMax>
Status Search(const OpCall& c) {
  const Shape& x = c.inputs[0].type.shape;
  const int64_t axis = c.attrs.Int("axis"), n = x[axis];
  const int64_t inner = NumElements(absl::MakeConstSpan(x).subspan(axis + 1)),
                outer = NumElements(absl::MakeConstSpan(x).subspan(0, axis));
  DispatchDType(c.inputs[0].type.dtype, [&](auto zero) {
    using T = decltype(zero);
    using C = ComputeType<T>;
    ParallelFor(outer, std::max<int64_t>(1, 32768 / (n * std::max<int64_t>(inner, 1))),
                [&](int64_t begin, int64_t end) {
                  for (int64_t o = begin; o < end; ++o) {
                    for (int64_t i = 0; i < inner; ++i) {
                      const T* from = c.inputs[0].as<T>() + o * n * inner + i;
                      C best = static_cast<C>(from[0]);
                      int64_t at = 0;
                      for (int64_t k = 1; k < n && best == best; ++k) {
                        const C v = static_cast<C>(from[k * inner]);
                        if (v != v || (kMax ? v > best : v < best)) best = v, at = k;
                      }
                      if (c.outputs[0].type.dtype == DType::kI32)
                        c.outputs[0].as<int32_t>()[o * inner + i] = static_cast<int32_t>(at);
                      else
                        c.outputs[0].as<int64_t>()[o * inner + i] = at;
                    }
                  }
                });
  });
  return absl::OkStatus();
}

StatusOr<DeviceProgram> SearchOnDevice(const OpSpec& spec, bool max) {
  const AxisView v = AxisView::Of(spec.inputs[0].shape, spec.attrs.Int("axis"));
  return OneStep(EachRow(v.outer * v.inner, v.size,
                         absl::StrCat("  typedef ", DeviceComputeType(spec.inputs[0].dtype), " C;\n",
                                      Constant("size", v.size), Constant("inner", v.inner), R"cuda(
  const i64 at = row / inner * size * inner + row % inner;
  C best = Get(x0[at]);
  for (i64 k = team.lane; k < size; k += team.lanes) best = )cuda",
                                      max ? "Max<C>" : "Min<C>", "(best, Get(x0[at + k * inner]));\n  best = team.",
                                      max ? "Max" : "Min", R"cuda((best);
  i64 first = size;
  for (i64 k = team.lane; k < size; k += team.lanes) {
    const C v = Get(x0[at + k * inner]);
    if ((v == best || (v != v && best != best)) && k < first) first = k;
  }
  first = team.Min(first);
  if (team.lane == 0) Set(y0[row], first);
)cuda")));
}

OpDef SearchOp(std::string name, ReferenceKernel reference) {
  OpDef op(std::move(name));
  op.Input("x").NumericTypes().ZeroGrad();
  op.Attr("axis", AttrKind::kAxis, int64_t{-1}, "the dimension to search")
      .Attr("dtype", AttrKind::kDType, DType::kI32, "of the result: i32 or i64");
  op.Check([](const Attrs& a, absl::Span<const TensorType> in) -> Status {
    if (in[0].shape[a.Int("axis")] == 0) return absl::InvalidArgumentError("x is empty along the axis");
    const DType t = a.Type("dtype");
    if (t == DType::kI32 || t == DType::kI64) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("dtype is ", Name(t), ", expected i32 or i64"));
  });
  op.Rule([](const Attrs& a, absl::Span<const TensorType> in) {
    std::string left, right;
    for (int64_t d = 0; d < in[0].rank(); ++d) {
      const bool searched = d == a.Int("axis");
      absl::StrAppend(&left, searched ? "!d" : "d", d, " ");
      if (!searched) absl::StrAppend(&right, "d", d, " ");
    }
    return absl::StrCat(left, "-> ", right);
  });
  op.Infer([](const Attrs& a, absl::Span<const TensorType> in) -> StatusOr<std::vector<TensorType>> {
    TensorType y{a.Type("dtype"), in[0].shape};
    y.shape.erase(y.shape.begin() + a.Int("axis"));
    return std::vector<TensorType>{y};
  });
  op.Reference(std::move(reference));
  op.AddSample({{{DType::kF32, {3, 5}}}});
  op.AddSample({{{DType::kF32, {3, 5, 2}}}, {{"axis", int64_t{1}}, {"dtype", DType::kI64}}});
  return op;
}

}  // namespace

MSLUA_OPERATOR(argmax) {
  OpDef max = SearchOp("argmax", Search<true>), min = SearchOp("argmin", Search<false>);
  max.OnDevice([](const OpSpec& spec) { return SearchOnDevice(spec, true); });
  min.OnDevice([](const OpSpec& spec) { return SearchOnDevice(spec, false); });
  max.Class("Argmax").Doc(
      "Where the largest element along `axis` is, counted from 0; the first one at ties. [.., n, ..] gives [.., ..].");
  min.Class("Argmin").Doc(
      "Where the smallest element along `axis` is, counted from 0; the first one at ties. [.., n, ..] gives [.., ..].");
  return {max, min};
}

static void OnnxSearch(onnx::Lowering& c, const char* op) {
  const std::string found = c.Op(op, {c.In(0)}, {{"axis", c.attrs().Int("axis")}, {"keepdims", int64_t{0}}});
  c.Result(c.TypeOut().dtype == DType::kI64 ? found : c.Cast(found, c.TypeOut().dtype));
}
MSLUA_ONNX(argmax) { OnnxSearch(c, "ArgMax"); }
MSLUA_ONNX(argmin) { OnnxSearch(c, "ArgMin"); }

}  // namespace mslua
