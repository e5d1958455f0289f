#include "core/onnx/lowering.h"
#include "core/ops/declare/averages.h"
#include "core/ops/define.h"

namespace mslua {
namespace {

StatusOr<AveragePooling> Resolve(const Attrs& attrs, const TensorType& x, absl::string_view size) {
  return AveragesBySize(attrs, x, size, AdaptiveAverages);
}

OpDef Define(std::string name, std::string input, std::string size) {
  OpDef op(std::move(name));
  op.Input(input).Required(size, AttrKind::kInts, "one number or (height, width)");
  op.Choice("data_format", {"NCHW", "NHWC"}, "the order of the dimensions");
  DeclareAverages(op, [size](const Attrs& a, const TensorType& x) { return Resolve(a, x, size); });
  return op;
}

// The gradient of either operator is the other one's kind, with x's sizes.
GradFn GradThrough(std::string op, std::string size) {
  return GradBySize(std::move(op), std::move(size), {"data_format"});
}

}  // namespace

MSLUA_OPERATOR(adaptive_avg_pool2d) {
  using Ints = std::vector<int64_t>;
  OpDef op = Define("adaptive_avg_pool2d", "x", "output_size");
  op.Class("AdaptiveAvgPool2D")
      .Doc(
          "Means over windows that divide each image into output_size pieces: x [n, c, h, w] gives [n, c, p, q]; 1 is "
          "the global mean.");
  op.Grad(GradThrough("adaptive_avg_pool2d_grad", "input_size"));
  op.AddSample({{{DType::kF32, {2, 3, 5, 7}}}, {{"output_size", Ints{1}}}});
  op.AddSample({{{DType::kF32, {2, 5, 7, 19}}}, {{"output_size", Ints{3, 2}}, {"data_format", "NHWC"}}});

  OpDef grad = Define("adaptive_avg_pool2d_grad", "dy", "input_size");
  grad.Doc("The gradient of adaptive_avg_pool2d: dy [n, c, p, q] gives [n, c, h, w].").Outputs({"dx"});
  grad.Grad(GradThrough("adaptive_avg_pool2d", "output_size"));
  grad.AddSample({{{DType::kF32, {2, 3, 1, 1}}}, {{"input_size", Ints{5, 7}}}});
  grad.AddSample({{{DType::kF32, {2, 3, 2, 19}}}, {{"input_size", Ints{5, 7}}, {"data_format", "NHWC"}}});
  return {op, grad};
}

// A product with the matrix of averages on each side: windows may differ in size and overlap.
MSLUA_ONNX(adaptive_avg_pool2d) {
  const auto p = Resolve(c.attrs(), c.TypeIn(), "output_size");
  if (!p.ok()) return c.Fail(std::string(p.status().message()));
  onnx::LowerImageProducts(c, p->rows.Matrix(false), p->columns.Matrix(true));
}

}  // namespace mslua
