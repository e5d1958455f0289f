#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "core/kernels/strided_copy.h"
#include "core/onnx/lowering.h"
#include "core/op/device_text.h"
#include "core/ops/define.h"

namespace mslua {
namespace {

bool Reverses(const Attrs& attrs, int64_t d) {
  const auto& axes = attrs.Ints("axis");
  return axes.empty() || std::find(axes.begin(), axes.end(), d) != axes.end();
}

}  // namespace

MSLUA_OPERATOR(reverse) {
  OpDef op("reverse");
  op.Class("ReverseV2").Doc("x in the opposite order along `axis`.");
  op.Input("x").AllTypes().Attr("axis", AttrKind::kAxes, std::vector<int64_t>{}, "the axes to reverse; none: all");
  op.Rule([](const Attrs& a, absl::Span<const TensorType> in) {
    std::string dims;
    for (int64_t d = 0; d < in[0].rank(); ++d)
      absl::StrAppend(&dims, Reverses(a, d) && in[0].shape[d] > 1 ? "!d" : "d", d, " ");
    return absl::StrCat(dims, "-> ", dims);
  });
  op.Grad([](GradContext& c) -> std::vector<Value> { return {c.g.Op("reverse", {c.dy[0]}, c.attrs)}; });
  op.Reference([](const OpCall& c) {
    const TensorType& x = c.inputs[0].type;
    const Shape to = RowMajorStrides(x.shape);
    Shape from = to;
    int64_t at = 0;
    for (int64_t d = 0; d < x.rank(); ++d) {
      if (!Reverses(c.attrs, d) || x.shape[d] == 0) continue;
      at += (x.shape[d] - 1) * from[d];
      from[d] = -from[d];
    }
    const int64_t size = SizeOf(x.dtype);
    StridedCopy(size, x.shape, c.inputs[0].as<char>() + at * size, from, c.outputs[0].data, to);
    return absl::OkStatus();
  });
  op.OnDevice([](const OpSpec& spec) {
    const Shape& shape = spec.inputs[0].shape;
    Shape strides = RowMajorStrides(shape);
    int64_t first = 0;
    for (size_t d = 0; d < shape.size(); ++d) {
      if (!Reverses(spec.attrs, static_cast<int64_t>(d)) || shape[d] == 0) continue;
      first += (shape[d] - 1) * strides[d];
      strides[d] = -strides[d];
    }
    const std::string from = StridedIndex("i", shape, strides, first);
    return OneStep(EachElement(NumElements(shape), absl::StrCat("  y0[i] = x0[", from, "];")));
  });
  using Ints = std::vector<int64_t>;
  op.AddSample({{{DType::kF32, {3, 5}}}, {{"axis", Ints{1}}}});
  op.AddSample({{{DType::kF32, {2, 3, 5}}}, {{"axis", Ints{0, 2}}}});
  op.AddSample({{{DType::kF32, {4, 3}}}});
  return {op};
}

MSLUA_ONNX(reverse) {
  std::vector<int64_t> axes = c.attrs().Ints("axis");
  for (int64_t d = 0; c.attrs().Ints("axis").empty() && d < c.TypeIn().rank(); ++d) axes.push_back(d);
  const std::vector<int64_t> last(axes.size(), -1), end(axes.size(), std::numeric_limits<int64_t>::min());
  c.Result(c.Op("Slice", {c.In(0), c.Ints(last), c.Ints(end), c.Ints(axes), c.Ints(last)}));
}

}  // namespace mslua
