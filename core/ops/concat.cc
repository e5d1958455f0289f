#include "absl/strings/str_cat.h"
#include "core/kernels/strided_copy.h"
#include "core/onnx/lowering.h"
#include "core/op/device_text.h"
#include "core/ops/define.h"

namespace mslua {

// rows_highway.cc
FastKernel RowPieces(bool joins);

namespace {

// Every dimension but the joined one is shared; that one differs in every tensor.
std::string ConcatRule(const Attrs& attrs, absl::Span<const TensorType> in) {
  const int64_t axis = attrs.Int("axis");
  const auto dims = [&](absl::string_view joined) {
    std::string text;
    for (int64_t d = 0; d < in[0].rank(); ++d)
      absl::StrAppend(&text, d == axis ? absl::StrCat("!", joined) : absl::StrCat("d", d), " ");
    return text;
  };
  std::string rule;
  for (size_t i = 0; i < in.size(); ++i) absl::StrAppend(&rule, i ? ", " : "", dims(absl::StrCat("x", i)));
  return absl::StrCat(rule, "-> ", dims("y"));
}

}  // namespace

MSLUA_OPERATOR(concat) {
  OpDef op("concat");
  op.Class("Concat").Doc(
      "Tensors joined along `axis`; their other dimensions are equal. Stack joins along a new dimension, scalars too.");
  op.Variadic("x").AllTypes().Attr("axis", AttrKind::kAxis, int64_t{0}, "the dimension to join along");
  op.Rule(ConcatRule);
  op.Infer([](const Attrs& a, absl::Span<const TensorType> in) -> StatusOr<std::vector<TensorType>> {
    const int64_t axis = a.Int("axis");
    TensorType y = in[0];
    for (const TensorType& t : in.subspan(1)) {
      Shape want = in[0].shape;
      if (t.rank() == y.rank()) want[axis] = t.shape[axis];
      if (t.shape != want)
        return absl::InvalidArgumentError(absl::StrCat("shapes differ outside dimension ", axis + 1));
      y.shape[axis] += t.shape[axis];
    }
    return std::vector<TensorType>{y};
  });
  op.Grad([](GradContext& c) {
    const int64_t axis = c.attrs.Int("axis");
    std::vector<Value> dx;
    int64_t at = 0;
    for (size_t i = 0; i < c.inputs.size(); ++i) {
      const Shape shape = c.g.TypeOf(c.x(i)).shape;
      std::vector<int64_t> begin(shape.size(), 0), end(shape.begin(), shape.end());
      begin[axis] = at;
      at = end[axis] = at + shape[axis];
      dx.push_back(c.needed[i] ? c.g.Op("strided_slice", {c.dy[0]}, {{"begin", begin}, {"end", end}}) : Value());
    }
    return dx;
  });
  op.Reference([](const OpCall& c) {
    const TensorType& type = c.outputs[0].type;
    const int64_t axis = c.attrs.Int("axis"), size = SizeOf(type.dtype);
    const Shape strides = RowMajorStrides(type.shape);
    int64_t at = 0;
    for (const TensorView& x : c.inputs) {
      StridedCopy(size, x.type.shape, x.data, RowMajorStrides(x.type.shape),
                  c.outputs[0].as<char>() + at * strides[axis] * size, strides);
      at += x.type.shape[axis];
    }
    return absl::OkStatus();
  });
  op.Fast(RowPieces(true));
  op.OnDevice([](const OpSpec& spec) {
    const auto axis = static_cast<size_t>(spec.attrs.Int("axis"));
    const Shape strides = RowMajorStrides(spec.outputs[0].shape);
    DeviceProgram program;
    int64_t at = 0;
    for (size_t k = 0; k < spec.inputs.size(); ++k) {
      const Shape& shape = spec.inputs[k].shape;
      const std::string to = StridedIndex("i", shape, strides, at * strides[axis]);
      program.steps.push_back(EachElement(NumElements(shape), absl::StrCat("  y0[", to, "] = x", k, "[i];")));
      at += shape[axis];
    }
    return program;
  });
  op.AddSample({{{DType::kF32, {3, 2}}, {DType::kF32, {3, 5}}}, {{"axis", int64_t{1}}}});
  op.AddSample({{{DType::kF32, {3, 2}}, {DType::kF32, {1, 2}}, {DType::kF32, {2, 2}}}});
  op.AddSample({{{DType::kF32, {0, 2}}, {DType::kF32, {3, 2}}, {DType::kF32, {0, 2}}}});
  return {op};
}

MSLUA_ONNX(concat) { c.Result(c.Op("Concat", c.AllInputs(), {{"axis", c.attrs().Int("axis")}})); }

}  // namespace mslua
