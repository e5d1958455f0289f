#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/kernels/simd/max_pool.h"
#include "core/onnx/lowering.h"
#include "core/ops/declare/device_images.h"
#include "core/ops/declare/maxima.h"
#include "core/ops/define.h"

namespace mslua {
namespace {

std::string PoolRule(const Attrs& a, bool with_dy, bool to_input) {
  const bool last = ChannelsLast(a);
  const std::string x = last ? "n !h !w c" : "n c !h !w", y = last ? "n !p !q c" : "n c !p !q";
  return absl::StrCat(x, with_dy ? ", " + y : "", " -> ", to_input ? x : y);
}

Status Forward(const OpCall& call) {
  ASSIGN_OR_RETURN(const Pooling p, ResolvePooling(call.attrs, call.inputs[0].type));
  ReferenceMaxima(p, call);
  return absl::OkStatus();
}

Status Backward(const OpCall& call) {
  ASSIGN_OR_RETURN(const Pooling p, ResolvePooling(call.attrs, call.inputs[0].type));
  ReferenceMaximaGrad(p, call);
  return absl::OkStatus();
}

// Looks for the first maximum of the window at (p, q): its place in image n, channel c is `best`, the value `most`.
constexpr char kMaximum[] = R"cuda(
  const i64 h0 = p * stride_h - before_h, w0 = q * stride_w - before_w;
  i64 best = -1;
  C most = 0;
  for (i64 r = h0 < 0 ? 0 : h0; r < h0 + size_h && r < height; ++r) {
    for (i64 s = w0 < 0 ? 0 : w0; s < w0 + size_w && s < width; ++s) {
      const i64 at = n * x_n + c * x_c + r * x_h + s * x_w;
      const C v = Get(x0[at]);
      if (best < 0 || v > most || (v != v && most == most)) best = at, most = v;
    }
  }
)cuda";

std::string PoolText(const Pooling& p, DType t) {
  return absl::StrCat("  typedef ", DeviceComputeType(t), " C;\n", WindowText(p.window, p.x), ImageStrides("x", p.x),
                      ImageStrides("y", p.y));
}

StatusOr<DeviceProgram> ForwardOnDevice(const OpSpec& spec) {
  ASSIGN_OR_RETURN(const Pooling p, ResolvePooling(spec.attrs, spec.inputs[0]));
  return OneStep(
      EachElement(p.y.elements(), absl::StrCat(PoolText(p, spec.inputs[0].dtype), ImagePlace(p.y),
                                               "  const i64 p = h, q = w;\n", kMaximum, "  Set(y0[i], most);")));
}

// Every pixel asks the windows that cover it whether it is their first maximum.
StatusOr<DeviceProgram> BackwardOnDevice(const OpSpec& spec) {
  ASSIGN_OR_RETURN(const Pooling p, ResolvePooling(spec.attrs, spec.inputs[0]));
  return OneStep(EachElement(p.x.elements(), absl::StrCat(PoolText(p, spec.inputs[0].dtype), ImagePlace(p.x),
                                                          Constant("rows", p.y.h), Constant("columns", p.y.w), R"cuda(
  const i64 own = n * x_n + c * x_c + h * x_h + w * x_w;
  C sum = 0;
  i64 p = h + before_h - size_h + stride_h;
  for (p = p < 0 ? 0 : p / stride_h; p < rows && p * stride_h - before_h <= h; ++p) {
    i64 q = w + before_w - size_w + stride_w;
    for (q = q < 0 ? 0 : q / stride_w; q < columns && q * stride_w - before_w <= w; ++q) {)cuda",
                                                          kMaximum, R"cuda(
      if (best == own) sum += Get(x1[n * y_n + c * y_c + p * y_h + q * y_w]);
    }
  }
  Set(y0[own], sum);
)cuda")));
}

// dx is linear in dy: dy's gradient has that of dx at the first maximum of each window, which is found in the patches
// of x, padded with what never wins.
std::vector<Value> GradGrad(GradContext& c) {
  GraphBuilder& g = c.g;
  const auto p = ResolvePooling(c.attrs, g.TypeOf(c.x(0)));
  if (!p.ok()) {
    g.Fail(p.status());
    return std::vector<Value>(2);
  }
  const bool last = ChannelsLast(c.attrs);
  const Window& w = p->window;
  std::vector<int64_t> low(4), high(4);
  for (int a = 0; a < 2; ++a) {
    low[a + (last ? 1 : 2)] = w.before[a];
    high[a + (last ? 1 : 2)] = w.after[a];
  }
  const auto patches = [&](Value v, double outside) {
    v = g.Op("pad", {v}, {{"low", low}, {"high", high}, {"value", outside}});
    v = g.Op("unfold", {v},
             {{"kernel_size", std::vector<int64_t>{w.size[0], w.size[1]}},
              {"stride", std::vector<int64_t>{w.stride[0], w.stride[1]}},
              {"data_format", c.attrs.Str("data_format")}});
    return Reshape(g, v, {p->y.n, p->y.h, p->y.w, p->y.c, w.size[0] * w.size[1]});
  };
  const Value places =
      g.Op("argmax", {patches(c.x(0), -std::numeric_limits<double>::infinity())}, {{"axis", int64_t{4}}});
  const std::vector<int64_t> results = {p->y.n, p->y.h, p->y.w, p->y.c};
  const Value taken = g.Op("gather_d", {patches(c.dy[0], 0), Reshape(g, places, {p->y.n, p->y.h, p->y.w, p->y.c, 1})},
                           {{"axis", int64_t{4}}});
  const Value d = Reshape(g, taken, results);
  return {Value(), last ? d : Transpose(g, d, {0, 3, 1, 2})};
}

void DeclarePool(OpDef& op) {
  op.Required("kernel_size", AttrKind::kInts, "one number or (height, width)");
  DeclareWindow(op, false);
}

}  // namespace

MSLUA_OPERATOR(max_pool2d) {
  using Ints = std::vector<int64_t>;
  OpDef op("max_pool2d");
  op.Class("MaxPool").Doc(
      "The largest element under each window: x [n, c, h, w] gives [n, c, p, q] (channels last with data_format "
      "'NHWC'). Padding never wins. Of equal elements the first takes the gradient.");
  op.Input("x");
  DeclarePool(op);
  op.Infer([](const Attrs& a, absl::Span<const TensorType> in) -> StatusOr<std::vector<TensorType>> {
    ASSIGN_OR_RETURN(const Pooling p, ResolvePooling(a, in[0]));
    return std::vector<TensorType>{{in[0].dtype, p.y.shape()}};
  });
  op.Rule([](const Attrs& a, absl::Span<const TensorType>) { return PoolRule(a, false, false); });
  op.Grad([](GradContext& c) {
    Attrs attrs;
    for (const AttrDef& d : c.op.attrs) attrs.Set(d.name, *c.attrs.Find(d.name));
    return std::vector<Value>{c.g.Op("max_pool2d_grad", {c.x(0), c.dy[0]}, attrs)};
  });
  op.Reference(Forward).OnDevice(ForwardOnDevice).Fast(HighwayMaxPool());
  op.AddSample({{{DType::kF32, {2, 3, 7, 6}}}, {{"kernel_size", Ints{2}}, {"stride", Ints{2}}}});
  op.AddSample({{{DType::kF32, {2, 7, 6, 19}}},
                {{"kernel_size", Ints{3}},
                 {"stride", Ints{2}},
                 {"pad_mode", "pad"},
                 {"padding", Ints{1}},
                 {"data_format", "NHWC"}}});
  op.AddSample({{{DType::kF32, {1, 2, 5, 5}}}, {{"kernel_size", Ints{3, 2}}, {"pad_mode", "same"}}});

  OpDef grad("max_pool2d_grad");
  grad.Doc("The gradient of max_pool2d: each element of dy goes to the first maximum of its window in x, found again.");
  grad.Input("x").Input("dy").Outputs({"dx"});
  DeclarePool(grad);
  grad.Infer([](const Attrs& a, absl::Span<const TensorType> in) -> StatusOr<std::vector<TensorType>> {
    ASSIGN_OR_RETURN(const Pooling p, ResolvePooling(a, in[0]));
    if (in[1].shape != p.y.shape())
      return absl::InvalidArgumentError(absl::StrCat("dy should be ", ToString(p.y.shape())));
    return std::vector<TensorType>{in[0]};
  });
  grad.Rule([](const Attrs& a, absl::Span<const TensorType>) { return PoolRule(a, true, true); });
  grad.Grad(GradGrad).Reference(Backward).OnDevice(BackwardOnDevice).Fast(HighwayMaxPoolGrad());
  grad.AddSample(
      {{{DType::kF32, {2, 3, 7, 6}}, {DType::kF32, {2, 3, 3, 3}}}, {{"kernel_size", Ints{2}}, {"stride", Ints{2}}}});
  grad.AddSample({{{DType::kF32, {2, 7, 6, 19}}, {DType::kF32, {2, 4, 3, 19}}},
                  {{"kernel_size", Ints{3}},
                   {"stride", Ints{2}},
                   {"pad_mode", "pad"},
                   {"padding", Ints{1}},
                   {"data_format", "NHWC"}}});
  return {op, grad};
}

MSLUA_ONNX(max_pool2d) {
  const auto kernel = Pair(c.attrs(), "kernel_size");
  const Image x = Image::Of(c.TypeIn(), ChannelsLast(c.attrs()));
  if (!kernel.ok()) return c.Fail(std::string(kernel.status().message()));
  const auto w = ResolveWindow(c.attrs(), *kernel, x.h, x.w);
  if (!w.ok()) return c.Fail(std::string(w.status().message()));
  using Ints = std::vector<int64_t>;
  onnx::NamedAttrs attrs = {{"kernel_shape", Ints{w->size[0], w->size[1]}},
                            {"strides", Ints{w->stride[0], w->stride[1]}},
                            {"pads", Ints{w->before[0], w->before[1], w->after[0], w->after[1]}}};
  c.Result(onnx::FromChannelsFirst(c, c.Op("MaxPool", {onnx::ToChannelsFirst(c, c.In(0))}, attrs)));
}

}  // namespace mslua
