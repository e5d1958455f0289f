#include "absl/strings/str_cat.h"
#include "core/base/round_up.h"
#include "core/kernels/simd/average_pool.h"
#include "core/onnx/lowering.h"
#include "core/ops/declare/device_images.h"
#include "core/ops/declare/maxima.h"
#include "core/ops/define.h"

namespace mslua {
namespace {

// Windows that cover the images as evenly as can be, as those of AdaptiveAverages.
struct AdaptivePooling {
  Image x, y;

  struct Range {
    int64_t begin, end;
  };
  Range Covered(int a, int64_t i) const {
    const int64_t size = a == 0 ? x.h : x.w, results = a == 0 ? y.h : y.w;
    return {i * size / results, CeilDiv((i + 1) * size, results)};
  }
};

StatusOr<AdaptivePooling> Resolve(const Attrs& attrs, const TensorType& x) {
  if (x.rank() != 4) return absl::InvalidArgumentError("expected 4 dimensions");
  ASSIGN_OR_RETURN(const auto size, Pair(attrs, "output_size"));
  AdaptivePooling p;
  p.x = p.y = Image::Of(x, ChannelsLast(attrs));
  if (p.x.h < 1 || p.x.w < 1) return absl::InvalidArgumentError("the images have no pixels");
  RETURN_IF_ERROR(CheckAverages({p.x.h, p.x.w, size[0], size[1]}));
  p.y.h = size[0];
  p.y.w = size[1];
  return p;
}

void Declare(OpDef& op) {
  op.Required("output_size", AttrKind::kInts, "one number or (height, width)");
  op.Choice("data_format", {"NCHW", "NHWC"}, "the order of the dimensions");
}

std::string PoolRule(const Attrs& a, bool gradient) {
  const std::string x = ChannelsLast(a) ? "n !h !w c" : "n c !h !w", y = ChannelsLast(a) ? "n !p !q c" : "n c !p !q";
  return gradient ? absl::StrCat(x, ", ", y, " -> ", x) : absl::StrCat(x, " -> ", y);
}

// Looks for the first maximum of the window at (p, q): its place in image n, channel c is `best`, the value `most`.
constexpr char kMaximum[] = R"cuda(
  i64 best = -1;
  C most = 0;
#pragma unroll 1
  for (i64 r = p * height / rows; r < ((p + 1) * height + rows - 1) / rows; ++r) {
    for (i64 s = q * width / columns; s < ((q + 1) * width + columns - 1) / columns; ++s) {
      const i64 at = n * x_n + c * x_c + r * x_h + s * x_w;
      const C v = Get(x0[at]);
      if (best < 0 || v > most || (v != v && most == most)) best = at, most = v;
    }
  }
)cuda";

std::string PoolText(const AdaptivePooling& p, DType t) {
  return absl::StrCat("  typedef ", DeviceComputeType(t), " C;\n", ImageStrides("x", p.x), ImageStrides("y", p.y),
                      Constant("height", p.x.h), Constant("width", p.x.w), Constant("rows", p.y.h),
                      Constant("columns", p.y.w));
}

StatusOr<DeviceProgram> ForwardOnDevice(const OpSpec& spec) {
  ASSIGN_OR_RETURN(const AdaptivePooling p, Resolve(spec.attrs, spec.inputs[0]));
  return OneStep(
      EachElement(p.y.elements(), absl::StrCat(PoolText(p, spec.inputs[0].dtype), ImagePlace(p.y),
                                               "  const i64 p = h, q = w;\n", kMaximum, "  Set(y0[i], most);")));
}

// Every pixel asks the windows that cover it whether it is their first maximum.
StatusOr<DeviceProgram> BackwardOnDevice(const OpSpec& spec) {
  ASSIGN_OR_RETURN(const AdaptivePooling p, Resolve(spec.attrs, spec.inputs[0]));
  return OneStep(EachElement(p.x.elements(), absl::StrCat(PoolText(p, spec.inputs[0].dtype), ImagePlace(p.x), R"cuda(
  const i64 own = n * x_n + c * x_c + h * x_h + w * x_w;
  C sum = 0;
  for (i64 p = h * rows / height; p < rows && p * height / rows <= h; ++p) {
    for (i64 q = w * columns / width; q < columns && q * width / columns <= w; ++q) {)cuda",
                                                          kMaximum, R"cuda(
      if (best == own) sum += Get(x1[n * y_n + c * y_c + p * y_h + q * y_w]);
    }
  }
  Set(y0[own], sum);
)cuda")));
}

}  // namespace

MSLUA_OPERATOR(adaptive_max_pool2d) {
  using Ints = std::vector<int64_t>;
  OpDef op("adaptive_max_pool2d");
  op.Class("AdaptiveMaxPool2D")
      .Doc(
          "The largest elements of windows that divide each image into output_size pieces: x [n, c, h, w] gives [n, c, "
          "p, q]; 1 is the global maximum. Window i begins at floor(i * size / results) and ends before ceil((i + 1) * "
          "size / results). Of equal elements the first takes the gradient.");
  op.Input("x");
  Declare(op);
  op.Infer([](const Attrs& a, absl::Span<const TensorType> in) -> StatusOr<std::vector<TensorType>> {
    ASSIGN_OR_RETURN(const AdaptivePooling p, Resolve(a, in[0]));
    return std::vector<TensorType>{{in[0].dtype, p.y.shape()}};
  });
  op.Rule([](const Attrs& a, absl::Span<const TensorType>) { return PoolRule(a, false); });
  op.Grad([](GradContext& c) {
    return std::vector<Value>{
        c.g.Op("adaptive_max_pool2d_grad", {c.x(0), c.dy[0]},
               {{"output_size", c.attrs.Ints("output_size")}, {"data_format", c.attrs.Str("data_format")}})};
  });
  op.Reference([](const OpCall& call) {
    ASSIGN_OR_RETURN(const AdaptivePooling p, Resolve(call.attrs, call.inputs[0].type));
    ReferenceMaxima(p, call);
    return absl::OkStatus();
  });
  op.OnDevice(ForwardOnDevice);
  op.AddSample({{{DType::kF32, {2, 3, 5, 7}}}, {{"output_size", Ints{1}}}});
  op.AddSample({{{DType::kF32, {2, 5, 7, 3}}}, {{"output_size", Ints{3, 2}}, {"data_format", "NHWC"}}});
  op.AddSample({{{DType::kF32, {1, 2, 3, 2}}}, {{"output_size", Ints{5, 4}}}});

  OpDef grad("adaptive_max_pool2d_grad");
  grad.Doc(
      "The gradient of adaptive_max_pool2d: each element of dy goes to the first maximum of its window in x, found "
      "again.");
  grad.Input("x").Input("dy").Outputs({"dx"});
  Declare(grad);
  grad.Infer([](const Attrs& a, absl::Span<const TensorType> in) -> StatusOr<std::vector<TensorType>> {
    ASSIGN_OR_RETURN(const AdaptivePooling p, Resolve(a, in[0]));
    if (in[1].shape != p.y.shape())
      return absl::InvalidArgumentError(absl::StrCat("dy should be ", ToString(p.y.shape())));
    return std::vector<TensorType>{in[0]};
  });
  grad.Rule([](const Attrs& a, absl::Span<const TensorType>) { return PoolRule(a, true); });
  grad.Reference([](const OpCall& call) {
    ASSIGN_OR_RETURN(const AdaptivePooling p, Resolve(call.attrs, call.inputs[0].type));
    ReferenceMaximaGrad(p, call);
    return absl::OkStatus();
  });
  grad.OnDevice(BackwardOnDevice);
  grad.AddSample({{{DType::kF32, {2, 3, 5, 7}}, {DType::kF32, {2, 3, 1, 1}}}, {{"output_size", Ints{1}}}});
  grad.AddSample({{{DType::kF32, {2, 5, 7, 3}}, {DType::kF32, {2, 3, 2, 3}}},
                  {{"output_size", Ints{3, 2}}, {"data_format", "NHWC"}}});
  grad.AddSample({{{DType::kF32, {1, 2, 3, 2}}, {DType::kF32, {1, 2, 5, 4}}}, {{"output_size", Ints{5, 4}}}});
  return {op, grad};
}

// The largest element of each window's rows, side by side, and then of its columns: windows may differ in size and
// overlap, which MaxPool's do not.
MSLUA_ONNX(adaptive_max_pool2d) {
  const Image x = Image::Of(c.TypeIn(), ChannelsLast(c.attrs())), y = Image::Of(c.TypeOut(), ChannelsLast(c.attrs()));
  const AdaptivePooling p{x, y};
  using Ints = std::vector<int64_t>;
  std::string v = onnx::ToChannelsFirst(c, c.In(0));
  for (int a = 0; a < 2; ++a) {
    const int64_t axis = a + 2;
    std::vector<std::string> parts;
    for (int64_t i = 0; i < (a == 0 ? y.h : y.w); ++i) {
      const auto range = p.Covered(a, i);
      const std::string piece = c.Op("Slice", {v, c.Ints({range.begin}), c.Ints({range.end}), c.Ints({axis})});
      parts.push_back(c.Op("ReduceMax", {piece}, {{"axes", Ints{axis}}, {"keepdims", int64_t{1}}}));
    }
    v = parts.size() == 1 ? parts[0] : c.Op("Concat", parts, {{"axis", axis}});
  }
  c.Result(onnx::FromChannelsFirst(c, v));
}

}  // namespace mslua
