#include "absl/strings/str_cat.h"
#include "core/onnx/lowering.h"
#include "core/ops/declare/averages.h"
#include "core/ops/define.h"

namespace mslua {
namespace {

// The map from images of x's size.
StatusOr<AveragePooling> Resolve(const Attrs& attrs, const Image& x) {
  ASSIGN_OR_RETURN(const auto size, Pair(attrs, "kernel_size"));
  ASSIGN_OR_RETURN(const Window window, ResolveWindow(attrs, size, x.h, x.w));
  for (int a = 0; a < 2; ++a) {
    if (window.before[a] >= size[a] || window.after[a] >= size[a]) {
      return absl::InvalidArgumentError(
          absl::StrCat("padding is not smaller than kernel_size ", size[a], ": some windows would be empty"));
    }
  }
  RETURN_IF_ERROR(CheckAverages({x.h, x.w}));
  const bool count = attrs.Bool("count_include_pad") && attrs.Str("pad_mode") == "pad";
  return AveragePooling{x.n, x.c, x.channels_last, WindowAverages(window, 0, x.h, count),
                        WindowAverages(window, 1, x.w, count)};
}

StatusOr<AveragePooling> OfForward(const Attrs& attrs, const TensorType& x) {
  if (x.rank() != 4) return absl::InvalidArgumentError("expected 4 dimensions");
  return Resolve(attrs, Image::Of(x, ChannelsLast(attrs)));
}

StatusOr<AveragePooling> OfGrad(const Attrs& attrs, const TensorType& dy) {
  ASSIGN_OR_RETURN(const auto size, Pair(attrs, "input_size"));
  if (dy.rank() != 4) return absl::InvalidArgumentError("expected 4 dimensions");
  Image x = Image::Of(dy, ChannelsLast(attrs));
  x.h = size[0];
  x.w = size[1];
  ASSIGN_OR_RETURN(const AveragePooling p, Resolve(attrs, x));
  if (p.result().shape() != dy.shape)
    return absl::InvalidArgumentError(absl::StrCat("dy should be ", ToString(p.result().shape())));
  return p.Transposed();
}

void DeclarePool(OpDef& op) {
  op.Required("kernel_size", AttrKind::kInts, "one number or (height, width)");
  DeclareWindow(op, false);
  op.Attr("count_include_pad", AttrKind::kBool, true,
          "elements of pad_mode 'pad' count as zeros; those of 'same' never count");
}

Attrs PoolAttrs(const Attrs& attrs) {
  Attrs kept;
  for (const char* name : {"kernel_size", "stride", "pad_mode", "padding", "data_format", "count_include_pad"})
    kept.Set(name, *attrs.Find(name));
  return kept;
}

}  // namespace

MSLUA_OPERATOR(avg_pool2d) {
  using Ints = std::vector<int64_t>;
  OpDef op("avg_pool2d");
  op.Class("AvgPool").Doc(
      "The mean under each window: x [n, c, h, w] gives [n, c, p, q] (channels last with data_format 'NHWC').");
  op.Input("x");
  DeclarePool(op);
  DeclareAverages(op, OfForward);
  op.Grad([](GradContext& c) {
    const Image x = Image::Of(c.g.TypeOf(c.x(0)), ChannelsLast(c.attrs));
    Attrs attrs = PoolAttrs(c.attrs);
    attrs.Set("input_size", Ints{x.h, x.w});
    return std::vector<Value>{c.g.Op("avg_pool2d_grad", {c.dy[0]}, attrs)};
  });
  op.AddSample({{{DType::kF32, {2, 3, 7, 6}}}, {{"kernel_size", Ints{2}}, {"stride", Ints{2}}}});
  op.AddSample({{{DType::kF32, {2, 7, 6, 19}}},
                {{"kernel_size", Ints{3}},
                 {"stride", Ints{2}},
                 {"pad_mode", "pad"},
                 {"padding", Ints{1}},
                 {"data_format", "NHWC"}}});
  op.AddSample({{{DType::kF32, {1, 2, 5, 5}}}, {{"kernel_size", Ints{3, 2}}, {"pad_mode", "same"}}});

  OpDef grad("avg_pool2d_grad");
  grad.Doc("The gradient of avg_pool2d: dy [n, c, p, q] gives [n, c, h, w].");
  grad.Input("dy").Outputs({"dx"});
  DeclarePool(grad);
  grad.Required("input_size", AttrKind::kInts, "(height, width) of the result");
  DeclareAverages(grad, OfGrad);
  grad.Grad([](GradContext& c) { return std::vector<Value>{c.g.Op("avg_pool2d", {c.dy[0]}, PoolAttrs(c.attrs))}; });
  grad.AddSample(
      {{{DType::kF32, {2, 3, 3, 3}}}, {{"kernel_size", Ints{2}}, {"stride", Ints{2}}, {"input_size", Ints{7, 6}}}});
  grad.AddSample({{{DType::kF32, {2, 4, 3, 19}}},
                  {{"kernel_size", Ints{3}},
                   {"stride", Ints{2}},
                   {"pad_mode", "pad"},
                   {"padding", Ints{1}},
                   {"data_format", "NHWC"},
                   {"input_size", Ints{7, 6}}}});
  return {op, grad};
}

MSLUA_ONNX(avg_pool2d) {
  const auto kernel = Pair(c.attrs(), "kernel_size");
  const Image x = Image::Of(c.TypeIn(), ChannelsLast(c.attrs()));
  if (!kernel.ok()) return c.Fail(std::string(kernel.status().message()));
  const auto w = ResolveWindow(c.attrs(), *kernel, x.h, x.w);
  if (!w.ok()) return c.Fail(std::string(w.status().message()));
  using Ints = std::vector<int64_t>;
  onnx::NamedAttrs attrs = {{"kernel_shape", Ints{w->size[0], w->size[1]}},
                            {"strides", Ints{w->stride[0], w->stride[1]}},
                            {"pads", Ints{w->before[0], w->before[1], w->after[0], w->after[1]}}};
  const bool count = c.attrs().Str("pad_mode") == "pad" && c.attrs().Bool("count_include_pad");
  attrs.emplace_back("count_include_pad", int64_t{count ? 1 : 0});
  c.Result(onnx::FromChannelsFirst(c, c.Op("AveragePool", {onnx::ToChannelsFirst(c, c.In(0))}, attrs)));
}

}  // namespace mslua
