#include "absl/strings/str_cat.h"
#include "core/kernels/strided_copy.h"
#include "core/onnx/lowering.h"
#include "core/op/device_text.h"
#include "core/ops/define.h"

namespace mslua {

// rows_highway.cc
FastKernel RowPieces(bool joins);

namespace {

constexpr int64_t kMostParts = 4096;

std::string SplitRule(const Attrs& attrs, absl::Span<const TensorType> in) {
  const auto dims = [&](absl::string_view along_axis) {
    std::string text;
    for (int64_t d = 0; d < in[0].rank(); ++d)
      absl::StrAppend(&text, d == attrs.Int("axis") ? absl::StrCat("!", along_axis) : absl::StrCat("d", d), " ");
    return text;
  };
  std::string rule = dims("x") + "-> ";
  for (int64_t i = 0; i < attrs.Int("output_num"); ++i) absl::StrAppend(&rule, i ? ", " : "", dims("y"));
  return rule;
}

}  // namespace

MSLUA_OPERATOR(split) {
  OpDef op("split");
  op.Class("Split").Doc(
      "x split along `axis` into `output_num` equal parts. `ops.split(x, {2, 3, 5}, axis)` gives parts of these "
      "sizes.");
  op.Input("x").AllTypes();
  op.Attr("axis", AttrKind::kAxis, int64_t{0}, "the dimension to split")
      .Attr("output_num", AttrKind::kInt, int64_t{1}, "how many parts");
  op.Rule(SplitRule);
  op.Infer([](const Attrs& a, absl::Span<const TensorType> in) -> StatusOr<std::vector<TensorType>> {
    const int64_t axis = a.Int("axis"), n = a.Int("output_num");
    TensorType part = in[0];
    if (n < 1 || n > kMostParts)
      return absl::InvalidArgumentError(absl::StrCat("output_num is ", n, ", expected 1 to ", kMostParts));
    if (part.shape[axis] % n != 0) {
      return absl::InvalidArgumentError(absl::StrCat("dimension ", axis + 1, " of size ", part.shape[axis],
                                                     " does not divide into ", n, " equal parts"));
    }
    part.shape[axis] /= n;
    return std::vector<TensorType>(static_cast<size_t>(n), part);
  });
  op.Grad([](GradContext& c) {
    std::vector<Value> parts(c.dy.begin(), c.dy.end());
    for (size_t i = 0; i < parts.size(); ++i) {
      if (!parts[i].valid()) parts[i] = ZerosLike(c.g, c.outputs[i]);
    }
    return std::vector<Value>{c.g.Op("concat", parts, {{"axis", c.attrs.Int("axis")}})};
  });
  op.Reference([](const OpCall& c) {
    const TensorType& type = c.inputs[0].type;
    const int64_t axis = c.attrs.Int("axis"), size = SizeOf(type.dtype);
    const Shape strides = RowMajorStrides(type.shape);
    int64_t at = 0;
    for (const TensorView& y : c.outputs) {
      StridedCopy(size, y.type.shape, c.inputs[0].as<char>() + at * strides[axis] * size, strides, y.data,
                  RowMajorStrides(y.type.shape));
      at += y.type.shape[axis];
    }
    return absl::OkStatus();
  });
  op.Fast(RowPieces(false));
  op.OnDevice([](const OpSpec& spec) {
    const auto axis = static_cast<size_t>(spec.attrs.Int("axis"));
    const Shape strides = RowMajorStrides(spec.inputs[0].shape);
    DeviceProgram program;
    int64_t at = 0;
    for (size_t k = 0; k < spec.outputs.size(); ++k) {
      const Shape& shape = spec.outputs[k].shape;
      const std::string from = StridedIndex("i", shape, strides, at * strides[axis]);
      program.steps.push_back(EachElement(NumElements(shape), absl::StrCat("  y", k, "[i] = x0[", from, "];")));
      at += shape[axis];
    }
    return program;
  });
  op.AddSample({{{DType::kF32, {3, 6}}}, {{"axis", int64_t{1}}, {"output_num", int64_t{3}}}});
  op.AddSample({{{DType::kF32, {4, 3}}}, {{"output_num", int64_t{2}}}});
  return {op};
}

MSLUA_ONNX(split) {
  const auto parts = c.OpMulti("Split", {c.In(0)}, c.outputs(), {{"axis", c.attrs().Int("axis")}});
  for (size_t i = 0; i < parts.size(); ++i) c.Result(parts[i], i);
}

}  // namespace mslua
