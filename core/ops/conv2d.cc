#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/parallel_for.h"
#include "core/kernels/convolution.h"
#include "core/kernels/dispatch.h"
#include "core/onnx/lowering.h"
#include "core/ops/conv2d_panels.h"
#include "core/ops/declare/device_images.h"
#include "core/ops/define.h"

namespace mslua {

// conv2d_onednn.cc
FastKernel OneDnnConvolution();
FastKernel OneDnnConvolutionGradInput();
FastKernel OneDnnConvolutionGradWeight();
// conv2d_tiles.cc
FastKernel TilesConvolution(DType type);
FastKernel TilesConvolutionGradInput(DType type);
FastKernel TilesConvolutionGradWeight(DType type);

namespace {

void DeclareConvolution(OpDef& op) {
  DeclareWindow(op, true);
  op.Attr("group", AttrKind::kInt, int64_t{1}, "channels are split into so many groups that do not mix");
}

// What a gradient keeps of the convolution's attributes.
Attrs WindowAttrs(const Attrs& attrs) {
  Attrs kept;
  for (const char* name : {"stride", "pad_mode", "padding", "dilation", "data_format", "group"})
    kept.Set(name, *attrs.Find(name));
  return kept;
}

// The dimensions of images with channel factor `c` and sizes h and w. Grouped channels stay whole.
std::string ImageDims(const Attrs& attrs, absl::string_view c, absl::string_view h, absl::string_view w) {
  const std::string channels = absl::StrCat(attrs.Int("group") == 1 ? "" : "!", c);
  if (ChannelsLast(attrs)) return absl::StrCat("n !", h, " !", w, " ", channels);
  return absl::StrCat("n ", channels, " !", h, " !", w);
}
std::string WeightDims(const Attrs& attrs) { return attrs.Int("group") == 1 ? "o c !kh !kw" : "!o !d !kh !kw"; }

double ConvolutionFlops(const Convolution& c) {
  return 2.0 * static_cast<double>(c.y.elements() * c.in_per_group() * c.window.size[0] * c.window.size[1]);
}

// Strided access, so that one body serves both data formats.
struct Access {
  std::array<int64_t, 4> x, y;  // strides of n, c, h, w
  std::array<int64_t, 4> w;     // strides of o, c, kh, kw
  explicit Access(const Convolution& c) : x(c.x.strides()), y(c.y.strides()) {
    const Shape s = RowMajorStrides(c.weight_shape());
    for (int i = 0; i < 4; ++i) w[i] = s[i];
  }
};

template <class T>
void Forward(const Convolution& c, const T* x, const T* w, T* y) {
  using C = ComputeType<T>;
  const Access at(c);
  ParallelFor(c.y.n * c.y.c, 1, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t n = t / c.y.c, o = t % c.y.c, g = o / c.out_per_group();
      for (int64_t p = 0; p < c.y.h; ++p) {
        for (int64_t q = 0; q < c.y.w; ++q) {
          C sum{0};
          ForEachTap(c.window, c.x.h, c.x.w, p, q, [&](int64_t row, int64_t column, int64_t i, int64_t j) {
            const T* xs = x + n * at.x[0] + g * c.in_per_group() * at.x[1] + row * at.x[2] + column * at.x[3];
            const T* ws = w + o * at.w[0] + i * at.w[2] + j * at.w[3];
            for (int64_t k = 0; k < c.in_per_group(); ++k)
              sum += static_cast<C>(xs[k * at.x[1]]) * static_cast<C>(ws[k * at.w[1]]);
          });
          y[n * at.y[0] + o * at.y[1] + p * at.y[2] + q * at.y[3]] = static_cast<T>(sum);
        }
      }
    }
  });
}

template <class T>
void GradInput(const Convolution& c, const T* dy, const T* w, T* dx) {
  using C = ComputeType<T>;
  const Access at(c);
  ParallelFor(c.x.n * c.x.c, 1, [&](int64_t begin, int64_t end) {
    std::vector<C> plane(c.x.pixels());
    for (int64_t t = begin; t < end; ++t) {
      const int64_t n = t / c.x.c, k = t % c.x.c, g = k / c.in_per_group();
      std::fill(plane.begin(), plane.end(), C{0});
      for (int64_t o = g * c.out_per_group(); o < (g + 1) * c.out_per_group(); ++o) {
        const T* ws = w + o * at.w[0] + (k - g * c.in_per_group()) * at.w[1];
        for (int64_t p = 0; p < c.y.h; ++p) {
          for (int64_t q = 0; q < c.y.w; ++q) {
            const C d = static_cast<C>(dy[n * at.y[0] + o * at.y[1] + p * at.y[2] + q * at.y[3]]);
            ForEachTap(c.window, c.x.h, c.x.w, p, q, [&](int64_t row, int64_t column, int64_t i, int64_t j) {
              plane[row * c.x.w + column] += d * static_cast<C>(ws[i * at.w[2] + j * at.w[3]]);
            });
          }
        }
      }
      for (int64_t h = 0; h < c.x.h; ++h) {
        for (int64_t v = 0; v < c.x.w; ++v) {
          dx[n * at.x[0] + k * at.x[1] + h * at.x[2] + v * at.x[3]] = static_cast<T>(plane[h * c.x.w + v]);
        }
      }
    }
  });
}

template <class T>
void GradWeight(const Convolution& c, const T* x, const T* dy, T* dw) {
  using C = ComputeType<T>;
  const Access at(c);
  const int64_t taps = c.window.size[0] * c.window.size[1];
  ParallelFor(c.y.c * c.in_per_group(), 1, [&](int64_t begin, int64_t end) {
    std::vector<C> sums(taps);
    for (int64_t t = begin; t < end; ++t) {
      const int64_t o = t / c.in_per_group(), k = o / c.out_per_group() * c.in_per_group() + t % c.in_per_group();
      std::fill(sums.begin(), sums.end(), C{0});
      for (int64_t n = 0; n < c.x.n; ++n) {
        for (int64_t p = 0; p < c.y.h; ++p) {
          for (int64_t q = 0; q < c.y.w; ++q) {
            const C d = static_cast<C>(dy[n * at.y[0] + o * at.y[1] + p * at.y[2] + q * at.y[3]]);
            ForEachTap(c.window, c.x.h, c.x.w, p, q, [&](int64_t row, int64_t column, int64_t i, int64_t j) {
              sums[i * c.window.size[1] + j] +=
                  d * static_cast<C>(x[n * at.x[0] + k * at.x[1] + row * at.x[2] + column * at.x[3]]);
            });
          }
        }
      }
      for (int64_t i = 0; i < taps; ++i) dw[t * taps + i] = static_cast<T>(sums[i]);
    }
  });
}

std::string ConvolutionText(const Convolution& c) {
  return absl::StrCat(WindowText(c.window, c.x), ImageStrides("x", c.x), ImageStrides("y", c.y),
                      Constant("in", c.in_per_group()), Constant("out", c.out_per_group()), Constant("rows", c.y.h),
                      Constant("columns", c.y.w));
}

std::string TypeText(DType t) { return absl::StrCat("  typedef ", DeviceComputeType(t), " C;\n"); }

DeviceProgram ForwardOnDevice(const Convolution& c, DType t) {
  return OneStep(EachElement(c.y.elements(), absl::StrCat(TypeText(t), ConvolutionText(c), ImagePlace(c.y), R"cuda(
  const i64 from = n * x_n + c / out * in * x_c, taps = size_h * size_w;
  C sum = 0;
  for (i64 a = 0; a < size_h; ++a) {
    const i64 r = h * stride_h - before_h + a * dilation_h;
    if (r < 0 || r >= height) continue;
    for (i64 b = 0; b < size_w; ++b) {
      const i64 s = w * stride_w - before_w + b * dilation_w;
      if (s < 0 || s >= width) continue;
      const i64 at = from + r * x_h + s * x_w, tap = c * in * taps + a * size_w + b;
      for (i64 k = 0; k < in; ++k) sum += (C)Get(x0[at + k * x_c]) * (C)Get(x1[tap + k * taps]);
    }
  }
  Set(y0[i], sum);
)cuda")));
}

DeviceProgram GradInputOnDevice(const Convolution& c, DType t) {
  return OneStep(EachElement(c.x.elements(), absl::StrCat(TypeText(t), ConvolutionText(c), ImagePlace(c.x), R"cuda(
  const i64 group = c / in, taps = size_h * size_w;
  C sum = 0;
  for (i64 a = 0; a < size_h; ++a) {
    const i64 r = h + before_h - a * dilation_h, p = r / stride_h;
    if (r < 0 || r % stride_h != 0 || p >= rows) continue;
    for (i64 b = 0; b < size_w; ++b) {
      const i64 s = w + before_w - b * dilation_w, q = s / stride_w;
      if (s < 0 || s % stride_w != 0 || q >= columns) continue;
      const i64 at = n * y_n + p * y_h + q * y_w, tap = c % in * taps + a * size_w + b;
      for (i64 o = group * out; o < (group + 1) * out; ++o)
        sum += (C)Get(x0[at + o * y_c]) * (C)Get(x1[tap + o * in * taps]);
    }
  }
  Set(y0[i], sum);
)cuda")));
}

DeviceProgram GradWeightOnDevice(const Convolution& c, DType t) {
  DeviceReduction r;
  r.outputs = NumElements(c.weight_shape());
  r.length = c.y.n * c.y.h * c.y.w;
  r.type = DeviceComputeType(t);
  r.joins = "+";
  r.element = absl::StrCat(ConvolutionText(c), R"cuda(
    const i64 b = row % size_w, a = row / size_w % size_h;
    const i64 ch = row / (size_h * size_w) % in, o = row / (size_h * size_w * in);
    const i64 q = k % columns, p = k / columns % rows, n = k / (columns * rows);
    const i64 h = p * stride_h - before_h + a * dilation_h, w = q * stride_w - before_w + b * dilation_w;
    const bool inside = h >= 0 && h < height && w >= 0 && w < width;
    const C a0 = inside ? (C)Get(x1[n * y_n + o * y_c + p * y_h + q * y_w]) *
                              (C)Get(x0[n * x_n + (o / out * in + ch) * x_c + h * x_h + w * x_w])
                        : (C)0;)cuda");
  r.finish = "  Set(y0[row], t0);";
  return DeviceReduce(r);
}

OpDef ConvolutionForward() {
  OpDef op("conv2d");
  op.Computes(Precision::kNarrow);
  op.Class("Conv2D");
  op.Doc(
      "2-d convolution (cross-correlation, as in every framework) of images x [n, c, h, w] with w [o, c / group, kh, "
      "kw]: [n, o, p, q]. With data_format 'NHWC' images are [n, h, w, c] and [n, p, q, o]; w stays.");
  op.Input("x").Input("w");
  DeclareConvolution(op);
  op.Infer([](const Attrs& a, absl::Span<const TensorType> in) -> StatusOr<std::vector<TensorType>> {
    ASSIGN_OR_RETURN(const Convolution c, ResolveConvolution(a, in[0], in[1]));
    return std::vector<TensorType>{{in[0].dtype, c.y.shape()}};
  });
  op.Rule([](const Attrs& a, absl::Span<const TensorType>) {
    return absl::StrCat(ImageDims(a, "c", "h", "w"), ", ", WeightDims(a), " -> ", ImageDims(a, "o", "p", "q"));
  });
  op.Grad([](GradContext& c) {
    Attrs input = WindowAttrs(c.attrs), weight = input;
    const Image x = Image::Of(c.g.TypeOf(c.x(0)), ChannelsLast(c.attrs));
    const Shape& w = c.g.TypeOf(c.x(1)).shape;
    input.Set("input_size", std::vector<int64_t>{x.h, x.w});
    weight.Set("kernel_size", std::vector<int64_t>{w[2], w[3]});
    std::vector<Value> d(2);
    if (c.needed[0]) d[0] = c.g.Op("conv2d_grad_input", {c.dy[0], c.x(1)}, input);
    if (c.needed[1]) d[1] = c.g.Op("conv2d_grad_weight", {c.x(0), c.dy[0]}, weight);
    return d;
  });
  op.Flops([](const Attrs& a, absl::Span<const TensorType> in, absl::Span<const TensorType>) {
    return ConvolutionFlops(*ResolveConvolution(a, in[0], in[1]));
  });
  op.Reference([](const OpCall& call) {
    ASSIGN_OR_RETURN(const Convolution c, ResolveConvolution(call.attrs, call.inputs[0].type, call.inputs[1].type));
    DispatchFloat(call.outputs[0].type.dtype, [&](auto zero) {
      using T = decltype(zero);
      Forward(c, call.inputs[0].as<T>(), call.inputs[1].as<T>(), call.outputs[0].as<T>());
    });
    return absl::OkStatus();
  });
  op.OnDevice([](const OpSpec& s) -> StatusOr<DeviceProgram> {
    ASSIGN_OR_RETURN(const Convolution c, ResolveConvolution(s.attrs, s.inputs[0], s.inputs[1]));
    return ForwardOnDevice(c, s.outputs[0].dtype);
  });
  op.Fast(TilesConvolution(DType::kF32));
  op.Fast(TilesConvolution(DType::kBF16));
  op.Fast(OneDnnConvolution());
  op.Fast(PanelConvolution(ConvolutionOf, Forward<double>));
  using Ints = std::vector<int64_t>;
  op.AddSample({{{DType::kF32, {2, 3, 7, 6}}, {DType::kF32, {5, 3, 3, 3}}}});
  op.AddSample({{{DType::kF32, {2, 6, 9, 8}}, {DType::kF32, {4, 3, 3, 2}}},
                {{"stride", Ints{2, 1}},
                 {"pad_mode", "pad"},
                 {"padding", Ints{2, 1, 0, 1}},
                 {"dilation", Ints{2, 3}},
                 {"group", int64_t{2}}}});
  op.AddSample({{{DType::kF32, {2, 8, 7, 3}}, {DType::kF32, {4, 3, 3, 3}}},
                {{"stride", Ints{2}}, {"pad_mode", "same"}, {"data_format", "NHWC"}}});
  op.AddSample({{{DType::kF32, {2, 18, 5, 5}}, {DType::kF32, {20, 18, 1, 1}}}});
  return op;
}

// The convolution whose input's gradient is dy's with weight w.
StatusOr<Convolution> OfGradInput(const Attrs& attrs, const TensorType& dy, const TensorType& w) {
  ASSIGN_OR_RETURN(const auto size, Pair(attrs, "input_size"));
  if (dy.rank() != 4 || w.rank() != 4) return absl::InvalidArgumentError("expected 4 dimensions each");
  const bool last = ChannelsLast(attrs);
  const int64_t group = attrs.Int("group");
  if (HasTooManyElements({w.shape[1], group})) return absl::InvalidArgumentError(absl::StrCat("group is ", group));
  const Image x{dy.shape[0], w.shape[1] * group, size[0], size[1], last};
  ASSIGN_OR_RETURN(const Convolution c, ResolveConvolution(attrs, {dy.dtype, x.shape()}, w));
  if (c.y.shape() != dy.shape) return absl::InvalidArgumentError(absl::StrCat("dy should be ", ToString(c.y.shape())));
  return c;
}

OpDef ConvolutionGradInput() {
  OpDef op("conv2d_grad_input");
  op.Doc("The gradient of conv2d's images: dy [n, o, p, q] and w [o, c / group, kh, kw] give [n, c, h, w].");
  op.Input("dy").Input("w");
  DeclareConvolution(op);
  op.Required("input_size", AttrKind::kInts, "(height, width) of the result").Outputs({"dx"});
  op.Computes(Precision::kNarrow);  // a transposed convolution
  op.Infer([](const Attrs& a, absl::Span<const TensorType> in) -> StatusOr<std::vector<TensorType>> {
    ASSIGN_OR_RETURN(const Convolution c, OfGradInput(a, in[0], in[1]));
    return std::vector<TensorType>{{in[0].dtype, c.x.shape()}};
  });
  op.Rule([](const Attrs& a, absl::Span<const TensorType>) {
    return absl::StrCat(ImageDims(a, "o", "p", "q"), ", ", WeightDims(a), " -> ", ImageDims(a, "c", "h", "w"));
  });
  op.Grad([](GradContext& c) {
    const Attrs attrs = WindowAttrs(c.attrs);
    const Shape& w = c.g.TypeOf(c.x(1)).shape;
    Attrs weight = attrs;
    weight.Set("kernel_size", std::vector<int64_t>{w[2], w[3]});
    std::vector<Value> d(2);
    if (c.needed[0]) d[0] = c.g.Op("conv2d", {c.dy[0], c.x(1)}, attrs);
    if (c.needed[1]) d[1] = c.g.Op("conv2d_grad_weight", {c.dy[0], c.x(0)}, weight);
    return d;
  });
  op.Flops([](const Attrs& a, absl::Span<const TensorType> in, absl::Span<const TensorType>) {
    return ConvolutionFlops(*OfGradInput(a, in[0], in[1]));
  });
  op.Reference([](const OpCall& call) {
    ASSIGN_OR_RETURN(const Convolution c, OfGradInput(call.attrs, call.inputs[0].type, call.inputs[1].type));
    DispatchFloat(call.outputs[0].type.dtype, [&](auto zero) {
      using T = decltype(zero);
      GradInput(c, call.inputs[0].as<T>(), call.inputs[1].as<T>(), call.outputs[0].as<T>());
    });
    return absl::OkStatus();
  });
  op.OnDevice([](const OpSpec& s) -> StatusOr<DeviceProgram> {
    ASSIGN_OR_RETURN(const Convolution c, OfGradInput(s.attrs, s.inputs[0], s.inputs[1]));
    return GradInputOnDevice(c, s.outputs[0].dtype);
  });
  op.Fast(TilesConvolutionGradInput(DType::kF32));
  op.Fast(TilesConvolutionGradInput(DType::kBF16));
  op.Fast(OneDnnConvolutionGradInput());
  op.Fast(PanelConvolution(GradInputOf, GradInput<double>));
  using Ints = std::vector<int64_t>;
  op.AddSample({{{DType::kF32, {2, 5, 4, 3}}, {DType::kF32, {5, 3, 3, 3}}},
                {{"input_size", Ints{7, 6}}, {"stride", Ints{2}}, {"pad_mode", "same"}}});
  op.AddSample({{{DType::kF32, {2, 5, 4, 5}}, {DType::kF32, {5, 3, 3, 3}}},
                {{"input_size", Ints{7, 6}}, {"data_format", "NHWC"}}});
  return op;
}

// The convolution whose weight's gradient is x's with dy.
StatusOr<Convolution> OfGradWeight(const Attrs& attrs, const TensorType& x, const TensorType& dy) {
  ASSIGN_OR_RETURN(const auto size, Pair(attrs, "kernel_size"));
  if (x.rank() != 4 || dy.rank() != 4) return absl::InvalidArgumentError("expected 4 dimensions each");
  const bool last = ChannelsLast(attrs);
  const int64_t group = attrs.Int("group");
  if (group < 1) return absl::InvalidArgumentError(absl::StrCat("group is ", group, ", expected a positive number"));
  const Shape w = {Image::Of(dy, last).c, Image::Of(x, last).c / group, size[0], size[1]};
  ASSIGN_OR_RETURN(const Convolution c, ResolveConvolution(attrs, x, {x.dtype, w}));
  if (c.y.shape() != dy.shape) return absl::InvalidArgumentError(absl::StrCat("dy should be ", ToString(c.y.shape())));
  return c;
}

OpDef ConvolutionGradWeight() {
  OpDef op("conv2d_grad_weight");
  op.Doc("The gradient of conv2d's weight: x [n, c, h, w] and dy [n, o, p, q] give [o, c / group, kh, kw].");
  op.Input("x").Input("dy");
  DeclareConvolution(op);
  op.Required("kernel_size", AttrKind::kInts, "(kh, kw)").Outputs({"dw"});
  op.Infer([](const Attrs& a, absl::Span<const TensorType> in) -> StatusOr<std::vector<TensorType>> {
    ASSIGN_OR_RETURN(const Convolution c, OfGradWeight(a, in[0], in[1]));
    return std::vector<TensorType>{{in[0].dtype, c.weight_shape()}};
  });
  op.Rule([](const Attrs& a, absl::Span<const TensorType>) {
    return absl::StrCat(ImageDims(a, "c", "h", "w"), ", ", ImageDims(a, "o", "p", "q"), " -> ", WeightDims(a));
  });
  op.Grad([](GradContext& c) {
    const Attrs attrs = WindowAttrs(c.attrs);
    const Image x = Image::Of(c.g.TypeOf(c.x(0)), ChannelsLast(c.attrs));
    Attrs input = attrs;
    input.Set("input_size", std::vector<int64_t>{x.h, x.w});
    std::vector<Value> d(2);
    if (c.needed[0]) d[0] = c.g.Op("conv2d_grad_input", {c.x(1), c.dy[0]}, input);
    if (c.needed[1]) d[1] = c.g.Op("conv2d", {c.x(0), c.dy[0]}, attrs);
    return d;
  });
  op.Flops([](const Attrs& a, absl::Span<const TensorType> in, absl::Span<const TensorType>) {
    return ConvolutionFlops(*OfGradWeight(a, in[0], in[1]));
  });
  op.Reference([](const OpCall& call) {
    ASSIGN_OR_RETURN(const Convolution c, OfGradWeight(call.attrs, call.inputs[0].type, call.inputs[1].type));
    DispatchFloat(call.outputs[0].type.dtype, [&](auto zero) {
      using T = decltype(zero);
      GradWeight(c, call.inputs[0].as<T>(), call.inputs[1].as<T>(), call.outputs[0].as<T>());
    });
    return absl::OkStatus();
  });
  op.OnDevice([](const OpSpec& s) -> StatusOr<DeviceProgram> {
    ASSIGN_OR_RETURN(const Convolution c, OfGradWeight(s.attrs, s.inputs[0], s.inputs[1]));
    return GradWeightOnDevice(c, s.outputs[0].dtype);
  });
  op.Fast(TilesConvolutionGradWeight(DType::kF32));
  op.Fast(TilesConvolutionGradWeight(DType::kBF16));
  op.Fast(OneDnnConvolutionGradWeight());
  op.Fast(PanelConvolution(GradWeightOf, GradWeight<double>));
  using Ints = std::vector<int64_t>;
  op.AddSample({{{DType::kF32, {2, 3, 7, 6}}, {DType::kF32, {2, 5, 4, 3}}},
                {{"kernel_size", Ints{3, 3}}, {"stride", Ints{2}}, {"pad_mode", "same"}}});
  op.AddSample({{{DType::kF32, {2, 7, 6, 3}}, {DType::kF32, {2, 5, 4, 5}}},
                {{"kernel_size", Ints{3, 3}}, {"data_format", "NHWC"}}});
  return op;
}

}  // namespace

MSLUA_OPERATOR(conv2d) { return {ConvolutionForward(), ConvolutionGradInput(), ConvolutionGradWeight()}; }

// The attributes of ONNX's Conv and ConvTranspose.
static onnx::NamedAttrs OnnxWindow(const Convolution& v) {
  const Window& w = v.window;
  using Ints = std::vector<int64_t>;
  return {{"kernel_shape", Ints{w.size[0], w.size[1]}},
          {"strides", Ints{w.stride[0], w.stride[1]}},
          {"dilations", Ints{w.dilation[0], w.dilation[1]}},
          {"pads", Ints{w.before[0], w.before[1], w.after[0], w.after[1]}},
          {"group", v.group}};
}

MSLUA_ONNX(conv2d) {
  const auto v = ResolveConvolution(c.attrs(), c.TypeIn(0), c.TypeIn(1));
  if (!v.ok()) return c.Fail(std::string(v.status().message()));
  const std::string y = c.Op("Conv", {onnx::ToChannelsFirst(c, c.In(0)), c.In(1)}, OnnxWindow(*v));
  c.Result(onnx::FromChannelsFirst(c, y));
}

// The transposed convolution.
MSLUA_ONNX(conv2d_grad_input) {
  const auto v = OfGradInput(c.attrs(), c.TypeIn(0), c.TypeIn(1));
  if (!v.ok()) return c.Fail(std::string(v.status().message()));
  onnx::NamedAttrs attrs = OnnxWindow(*v);
  // What the windows leave out at the end of the image.
  const Window& w = v->window;
  const auto rest = [&](size_t a, int64_t size, int64_t count) {
    return size + w.before[a] + w.after[a] - ((count - 1) * w.stride[a] + (w.size[a] - 1) * w.dilation[a] + 1);
  };
  attrs.emplace_back("output_padding", std::vector<int64_t>{rest(0, v->x.h, v->y.h), rest(1, v->x.w, v->y.w)});
  c.Result(onnx::FromChannelsFirst(c, c.Op("ConvTranspose", {onnx::ToChannelsFirst(c, c.In(0)), c.In(1)}, attrs)));
}

}  // namespace mslua
