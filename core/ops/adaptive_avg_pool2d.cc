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
  op.Fast(HighwayAveragePool([size](const OpSpec& s) { return Resolve(s.attrs, s.inputs[0], size); }));
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
  const Image x = Image::Of(c.TypeIn(), ChannelsLast(c.attrs())), y = Image::Of(c.TypeOut(), ChannelsLast(c.attrs()));
  // [results, inputs], or its transpose.
  const auto averages = [&](int64_t inputs, int64_t results, bool transposed) {
    std::vector<float> m(static_cast<size_t>(inputs * results));
    for (int64_t r = 0; r < results; ++r) {
      const int64_t begin = r * inputs / results, end = ((r + 1) * inputs + results - 1) / results;
      for (int64_t i = begin; i < end; ++i)
        m[static_cast<size_t>(transposed ? i * results + r : r * inputs + i)] = 1.0f / static_cast<float>(end - begin);
    }
    const Shape shape = transposed ? Shape{inputs, results} : Shape{results, inputs};
    return c.Tensor({DType::kF32, shape},
                    std::string(reinterpret_cast<const char*>(m.data()), m.size() * sizeof(float)));
  };
  const DType type = c.TypeIn().dtype;
  std::string v = onnx::ToChannelsFirst(c, type == DType::kF32 ? c.In(0) : c.Cast(c.In(0), DType::kF32));
  v = c.Op("MatMul", {c.Op("MatMul", {averages(x.h, y.h, false), v}), averages(x.w, y.w, true)});
  v = onnx::FromChannelsFirst(c, v);
  c.Result(type == DType::kF32 ? v : c.Cast(v, type));
}

}  // namespace mslua
