#include "absl/strings/str_cat.h"
#include "core/kernels/simd/average_pool.h"
#include "core/onnx/lowering.h"
#include "core/ops/declare/device_images.h"
#include "core/ops/define.h"

namespace mslua {
namespace {

// The attribute that says the other side's size is `size`.
StatusOr<AveragePooling> Resolve(const Attrs& attrs, const TensorType& x, absl::string_view size) {
  if (x.rank() != 4) return absl::InvalidArgumentError("expected 4 dimensions");
  ASSIGN_OR_RETURN(const auto other, Pair(attrs, size));
  const Image image = Image::Of(x, ChannelsLast(attrs));
  RETURN_IF_ERROR(CheckAverages({image.h, image.w, other[0], other[1]}));
  if (size == "input_size") {
    return AveragePooling{image.n, image.c, image.channels_last, AdaptiveAverages(other[0], image.h),
                          AdaptiveAverages(other[1], image.w)}
        .Transposed();
  }
  return AveragePooling{image.n, image.c, image.channels_last, AdaptiveAverages(image.h, other[0]),
                        AdaptiveAverages(image.w, other[1])};
}

OpDef Define(std::string name, std::string input, std::string size) {
  OpDef op(std::move(name));
  op.Input(input).Choice("data_format", {"NCHW", "NHWC"}, "the order of the dimensions");
  op.Required(size, AttrKind::kInts, "one number or (height, width)");
  op.Rule([](const Attrs& a, absl::Span<const TensorType>) -> std::string {
    return ChannelsLast(a) ? "n !h !w c -> n !p !q c" : "n c !h !w -> n c !p !q";
  });
  op.Infer([size](const Attrs& a, absl::Span<const TensorType> in) -> StatusOr<std::vector<TensorType>> {
    ASSIGN_OR_RETURN(const AveragePooling p, Resolve(a, in[0], size));
    return std::vector<TensorType>{{in[0].dtype, p.result().shape()}};
  });
  op.Reference([size](const OpCall& c) {
    ASSIGN_OR_RETURN(const AveragePooling p, Resolve(c.attrs, c.inputs[0].type, size));
    ReferenceAveragePool(p, c.inputs[0].type.dtype, c.inputs[0].data, c.outputs[0].data);
    return absl::OkStatus();
  });
  op.OnDevice([size](const OpSpec& s) -> StatusOr<DeviceProgram> {
    ASSIGN_OR_RETURN(const AveragePooling p, Resolve(s.attrs, s.inputs[0], size));
    return AveragePoolOnDevice(p, s.inputs[0].dtype);
  });
  op.AnyLayout().Fast(HighwayAveragePool([size](const OpSpec& s) { return Resolve(s.attrs, s.inputs[0], size); }));
  return op;
}

// The gradient of either operator is the other one's kind, with x's sizes.
GradFn GradThrough(std::string op, std::string size) {
  return [op, size](GradContext& c) {
    const Image x = Image::Of(c.g.TypeOf(c.x(0)), ChannelsLast(c.attrs));
    return std::vector<Value>{
        c.g.Op(op, {c.dy[0]}, {{"data_format", c.attrs.Str("data_format")}, {size, std::vector<int64_t>{x.h, x.w}}})};
  };
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
