// Batch normalisation (Ioffe and Szegedy, 2015) in operators that can be sharded: sums over n, h and w that can be
// added over ranks, and elementwise maps that use them. batch_norm combines them.
#include <optional>

#include "absl/strings/str_cat.h"
#include "core/kernels/dispatch.h"
#include "core/kernels/simd/channels.h"
#include "core/onnx/lowering.h"
#include "core/op/device_text.h"
#include "core/ops/define.h"

namespace mslua {
namespace {

using absl::StrCat;

// "n c s0 s1" or "n s0 s1 c".
std::string ImageDims(const Attrs& attrs, int64_t rank) {
  const bool last = attrs.Str("data_format") == "NHWC";
  std::string dims = last ? "n" : "n c";
  for (int64_t d = 2; d < rank; ++d) absl::StrAppend(&dims, " s", d);
  return last ? dims + " c" : dims;
}

// Operands: `images` tensors of x's shape, then `vectors` of [channels]; results: `to_vectors` of [channels], of the
// vectors' type unless `sums` names another, or one of x's shape when it is 0.
void DeclareChannels(OpDef& op, int images, int vectors, int to_vectors, std::optional<DType> sums = std::nullopt) {
  op.Choice("data_format", {"NCHW", "NHWC"},
            "where x's channels are: axis 2 of n, c, .. or last (any number of dimensions from 2)");
  op.Rule([=](const Attrs& a, absl::Span<const TensorType> in) {
    const std::string x = ImageDims(a, in[0].rank());
    std::string rule = x;
    if (images == 2) rule += ", " + x;
    for (int i = 0; i < vectors; ++i) rule += ", c";
    rule += " -> " + (to_vectors == 0 ? x : "c");
    for (int i = 1; i < to_vectors; ++i) rule += ", c";
    return rule;
  });
  op.Check([=](const Attrs&, absl::Span<const TensorType> in) -> Status {
    if (in[0].rank() < 2) return absl::InvalidArgumentError("the images need 2 or more dimensions");
    const DType wanted = in[0].dtype == DType::kF64 ? DType::kF64 : DType::kF32;
    for (int i = images; i < images + vectors; ++i) {
      if (in[i].dtype != wanted)
        return absl::InvalidArgumentError(StrCat("statistics and parameters are ", Name(wanted), " here"));
    }
    return absl::OkStatus();
  });
  op.Infer([=](const Attrs& a, absl::Span<const TensorType> in) -> StatusOr<std::vector<TensorType>> {
    const int64_t c = Channels::Of(a, in[0].shape).channels;
    if (images == 2 && in[1].shape != in[0].shape) return absl::InvalidArgumentError("dy and x differ");
    for (int i = images; i < images + vectors; ++i) {
      if (in[i].shape != Shape{c})
        return absl::InvalidArgumentError(StrCat("expected [", c, "], one element a channel"));
    }
    if (to_vectors == 0) return std::vector<TensorType>{in[0]};
    return std::vector<TensorType>(to_vectors, {sums.value_or(in[images].dtype), {c}});
  });
}

// Calls f(element, channel) for all elements, in order.
template <class F>
void ForEachElement(const Channels& v, F f) {
  int64_t at = 0;
  for (int64_t o = 0; o < v.outer; ++o) {
    for (int64_t k = 0; k < v.channels; ++k) {
      for (int64_t i = 0; i < v.inner; ++i) f(at++, k);
    }
  }
}

// Element k of a tensor of statistics.
double At(const TensorView& v, int64_t k) { return LoadAsDouble(v.type.dtype, v.data, k); }

// The two sums of a reduction, from (element, channel) to its two terms.
template <class F>
void ReduceReference(const OpCall& call, const Channels& v, F terms) {
  std::vector<double> sums(2 * v.channels);
  ForEachElement(v, [&](int64_t i, int64_t k) {
    const std::pair<double, double> t = terms(i, k);
    sums[2 * k] += t.first;
    sums[2 * k + 1] += t.second;
  });
  for (int64_t k = 0; k < v.channels; ++k) {
    for (int o = 0; o < 2; ++o) StoreDouble(call.outputs[o].type.dtype, call.outputs[o].data, k, sums[2 * k + o]);
  }
}

// The values of a vector, as doubles.
std::vector<double> Doubles(const TensorView& v) {
  std::vector<double> out(v.type.elements());
  for (size_t i = 0; i < out.size(); ++i) out[i] = At(v, static_cast<int64_t>(i));
  return out;
}

Status StatsReference(const OpCall& call) {
  const std::vector<double> shift = Doubles(call.inputs[1]);
  DispatchFloat(call.inputs[0].type.dtype, [&](auto zero) {
    const auto* x = call.inputs[0].as<decltype(zero)>();
    ReduceReference(call, Channels::Of(call.attrs, call.inputs[0].type.shape), [&](int64_t i, int64_t k) {
      const double d = static_cast<double>(x[i]) - shift[k];
      return std::make_pair(d, d * d);
    });
  });
  return absl::OkStatus();
}

// Of a relu's operand y = (x - mean) * rstd * scale + bias, whether it lets the gradient through. Without a relu
// everything goes through. Inputs of `call`: dy, x, mean, rstd, scale, bias.
class Relu {
 public:
  Relu(const OpCall& call, bool there) : there_(there), mean_(Doubles(call.inputs[2])), rstd_(Doubles(call.inputs[3])) {
    if (!there) return;
    scale_ = Doubles(call.inputs[4]);
    bias_ = Doubles(call.inputs[5]);
  }
  double Through(double dy, double x, int64_t k) const {
    return !there_ || (x - mean_[k]) * rstd_[k] * scale_[k] + bias_[k] > 0 ? dy : 0;
  }

 private:
  const bool there_;
  const std::vector<double> mean_, rstd_;
  std::vector<double> scale_, bias_;
};

Status GradStatsReference(const OpCall& call, bool with_relu) {
  const std::vector<double> mean = Doubles(call.inputs[2]), rstd = Doubles(call.inputs[3]);
  const Relu relu(call, with_relu);
  DispatchFloat(call.inputs[0].type.dtype, [&](auto zero) {
    const auto *dy = call.inputs[0].as<decltype(zero)>(), *x = call.inputs[1].as<decltype(zero)>();
    ReduceReference(call, Channels::Of(call.attrs, call.inputs[0].type.shape), [&](int64_t i, int64_t k) {
      const double at = static_cast<double>(x[i]), g = relu.Through(static_cast<double>(dy[i]), at, k);
      return std::make_pair(g, g * (at - mean[k]) * rstd[k]);
    });
  });
  return absl::OkStatus();
}

Status ApplyReference(const OpCall& call) {
  const std::vector<double> mean = Doubles(call.inputs[1]), rstd = Doubles(call.inputs[2]),
                            scale = Doubles(call.inputs[3]), bias = Doubles(call.inputs[4]);
  DispatchFloat(call.inputs[0].type.dtype, [&](auto zero) {
    using T = decltype(zero);
    const T* x = call.inputs[0].as<T>();
    T* y = call.outputs[0].as<T>();
    ForEachElement(Channels::Of(call.attrs, call.inputs[0].type.shape), [&](int64_t i, int64_t k) {
      y[i] = static_cast<T>(
          static_cast<ComputeType<T>>((static_cast<double>(x[i]) - mean[k]) * rstd[k] * scale[k] + bias[k]));
    });
  });
  return absl::OkStatus();
}

Status GradApplyReference(const OpCall& call, bool with_relu) {
  const int sums = with_relu ? 6 : 5;
  const std::vector<double> mean = Doubles(call.inputs[2]), rstd = Doubles(call.inputs[3]),
                            scale = Doubles(call.inputs[4]), dbias = Doubles(call.inputs[sums]),
                            dscale = Doubles(call.inputs[sums + 1]);
  const Relu relu(call, with_relu);
  const int64_t count = call.attrs.Int("count");
  const double inverse = count > 0 ? 1.0 / static_cast<double>(count) : 0;
  DispatchFloat(call.inputs[0].type.dtype, [&](auto zero) {
    using T = decltype(zero);
    const T *dy = call.inputs[0].as<T>(), *x = call.inputs[1].as<T>();
    T* dx = call.outputs[0].as<T>();
    ForEachElement(Channels::Of(call.attrs, call.inputs[0].type.shape), [&](int64_t i, int64_t k) {
      const double at = static_cast<double>(x[i]), normal = (at - mean[k]) * rstd[k];
      const double d = relu.Through(static_cast<double>(dy[i]), at, k) - (dbias[k] + normal * dscale[k]) * inverse;
      dx[i] = static_cast<T>(static_cast<ComputeType<T>>(scale[k] * rstd[k] * d));
    });
  });
  return absl::OkStatus();
}

std::string ChannelText(const Channels& v) {
  return absl::StrCat(Constant("channels", v.channels), Constant("inner", v.inner), Constant("outer", v.outer));
}

// The terms of element `at`, channel `c`: C a0 and C a1.
DeviceProgram ChannelSumsOnDevice(const OpSpec& spec, const std::string& terms) {
  const Channels v = Channels::Of(spec.attrs, spec.inputs[0].shape);
  DeviceReduction r;
  r.outputs = v.channels;
  r.length = v.count();
  r.type = DeviceType(spec.outputs[0].dtype);
  r.joins = "++";
  r.adjacent = v.inner == 1;
  r.element = absl::StrCat(ChannelText(v),
                           "    const i64 c = row, at = (k / inner * channels + c) * inner + k % inner;\n", terms);
  r.finish = "  y0[row] = t0;\n  y1[row] = t1;";
  return DeviceReduce(r);
}

DeviceProgram ChannelMapOnDevice(const OpSpec& spec, const std::string& statements) {
  const Channels v = Channels::Of(spec.attrs, spec.inputs[0].shape);
  const DType vectors = spec.inputs.back().dtype;
  return OneStep(
      EachElement(v.elements(), absl::StrCat("  typedef ", DeviceType(vectors), " C;\n", ChannelText(v),
                                             "  const i64 at = i, c = i / inner % channels;\n", statements)));
}

DeviceProgram StatsOnDevice(const OpSpec& spec) {
  return ChannelSumsOnDevice(spec, "    const C a0 = (C)Get(x0[at]) - x1[c], a1 = a0 * a0;");
}

DeviceProgram ApplyOnDevice(const OpSpec& spec) {
  return ChannelMapOnDevice(spec, "  Set(y0[at], ((C)Get(x0[at]) - x1[c]) * x2[c] * x3[c] + x4[c]);");
}

// dy, x, mean, rstd[, scale, bias]: `g` is what a relu lets through, `normal` the normalised x.
std::string GradTerms(bool relu) {
  return absl::StrCat("  const C normal = ((C)Get(x1[at]) - x2[c]) * x3[c];\n  const C g = ",
                      relu ? "normal * x4[c] + x5[c] > 0 ? (C)Get(x0[at]) : (C)0" : "(C)Get(x0[at])", ";\n");
}

DeviceProgram GradStatsOnDevice(const OpSpec& spec, bool relu) {
  return ChannelSumsOnDevice(spec, GradTerms(relu) + "    const C a0 = g, a1 = g * normal;");
}

DeviceProgram GradApplyOnDevice(const OpSpec& spec, bool relu) {
  const int64_t count = spec.attrs.Int("count");
  const int sums = relu ? 6 : 5;
  return ChannelMapOnDevice(
      spec, absl::StrCat(GradTerms(relu), "  Set(y0[at], x4[c] * x3[c] * (g - (x", sums, "[c] + normal * x", sums + 1,
                         "[c]) * (C)", NumberText(count > 0 ? 1.0 / static_cast<double>(count) : 0), "));"));
}

// A vector [c] in the shape that broadcasts over x.
Value OverChannels(GraphBuilder& g, Value v, const Attrs& attrs, int64_t rank) {
  Shape shape(rank, 1);
  shape[attrs.Str("data_format") == "NHWC" ? rank - 1 : 1] = g.TypeOf(v).shape[0];
  return Reshape(g, v, shape);
}

// dsum and dsquares flow back to every element: d sum / dx = 1, d square_sum / dx = 2 (x - shift).
std::vector<Value> StatsGrad(GradContext& c) {
  GraphBuilder& g = c.g;
  const TensorType x = g.TypeOf(c.x(0));
  const double count = static_cast<double>(Channels::Of(c.attrs, x.shape).count());
  const Value shift = Cast(g, c.x(1), DType::kF64);
  const Value dsum = c.dy[0].valid() ? c.dy[0] : ZerosLike(g, shift),
              dsquares = c.dy[1].valid() ? c.dy[1] : ZerosLike(g, shift);
  std::vector<Value> d(2);
  if (c.needed[0]) {
    const auto over = [&](Value v) { return OverChannels(g, v, c.attrs, x.rank()); };
    const Value dx = EmitFormula(g, "dsum + 2 * (x - shift) * dsquares",
                                 {{"x", Cast(g, c.x(0), DType::kF64)},
                                  {"shift", over(shift)},
                                  {"dsum", over(dsum)},
                                  {"dsquares", over(dsquares)}});
    d[0] = Cast(g, dx, x.dtype);
  }
  if (c.needed[1]) {
    const Value d_shift =
        EmitFormula(g, "-count * dsum - 2 * sum * dsquares",
                    {{"sum", c.outputs[0]}, {"dsum", dsum}, {"dsquares", dsquares}}, {{"count", count}});
    d[1] = Cast(g, d_shift, g.TypeOf(c.x(1)).dtype);
  }
  return d;
}

std::vector<Value> ApplyGrad(GradContext& c) {
  GraphBuilder& g = c.g;
  const Value x = c.x(0), mean = c.x(1), rstd = c.x(2), scale = c.x(3), dy = c.dy[0];
  const AttrValue format = c.attrs.Str("data_format");
  const std::vector<Value> sums = g.OpMulti("batch_norm_grad_stats", {dy, x, mean, rstd}, {{"data_format", format}});
  if (!g.status().ok()) return std::vector<Value>(5);
  const Value dbias = sums[0], dscale = sums[1];
  std::vector<Value> d(5);
  if (c.needed[0])
    d[0] = g.Op("batch_norm_grad_apply", {dy, x, mean, rstd, scale, dbias, dscale},
                {{"count", c.attrs.Int("count")}, {"data_format", format}});
  if (c.attrs.Int("count") == 0) {
    if (c.needed[1])
      d[1] = EmitFormula(g, "-dbias * scale * rstd", {{"scale", scale}, {"rstd", rstd}, {"dbias", dbias}});
    if (c.needed[2])
      d[2] = EmitFormula(g, "dscale * scale / rstd", {{"scale", scale}, {"rstd", rstd}, {"dscale", dscale}});
  }
  d[3] = dscale;
  d[4] = dbias;
  return d;
}

constexpr char kCountDoc[] =
    "above 0: mean and rstd are x's own, over so many elements a channel on all devices together; x's gradient then "
    "includes their change, and none flows into mean and rstd";

std::vector<Value> Body(GraphBuilder& g, absl::Span<const Value> in, const Attrs& attrs) {
  const TensorType x = g.TypeOf(in[0]);
  const DType statistics = g.TypeOf(in[3]).dtype;
  const int64_t count = Channels::Of(attrs, x.shape).count();
  const Value scale = Cast(g, in[1], statistics), bias = Cast(g, in[2], statistics), old_mean = in[3], old_var = in[4];
  const AttrValue format = attrs.Str("data_format");
  const double eps = attrs.Float("eps");
  // An empty batch has no statistics: the running ones stay.
  if (!attrs.Bool("training") || count == 0) {
    const Value rstd = EmitFormula(g, "rsqrt(v + eps)", {{"v", old_var}}, {{"eps", eps}});
    return {g.Op("batch_norm_apply", {in[0], old_mean, rstd, scale, bias}, {{"data_format", format}}), old_mean,
            old_var};
  }
  const double inverse = 1 / static_cast<double>(count), m = attrs.Float("momentum");
  // The squares of x - shift are summed in f64. Where x is f64, that keeps the variance's digits only near the mean.
  Value shift = old_mean;
  if (x.dtype == DType::kF64) {
    const std::vector<Value> about = g.OpMulti("batch_norm_stats", {in[0], old_mean}, {{"data_format", format}});
    if (!g.status().ok()) return std::vector<Value>(3);
    shift = Add(g, old_mean, Cast(g, Mul(g, about[0], inverse), statistics));
  }
  const std::vector<Value> sums = g.OpMulti("batch_norm_stats", {in[0], shift}, {{"data_format", format}});
  if (!g.status().ok()) return std::vector<Value>(3);
  const double unbiased = count > 1 ? static_cast<double>(count) / static_cast<double>(count - 1) : 1;
  const Value wide_offset = Mul(g, sums[0], inverse);
  const Value wide_var =
      EmitFormula(g, "max(sq * inverse - d * d, 0)", {{"sq", sums[1]}, {"d", wide_offset}}, {{"inverse", inverse}});
  const Value offset = Cast(g, wide_offset, statistics), var = Cast(g, wide_var, statistics);
  const Value mean = Add(g, offset, shift);
  const Value rstd = EmitFormula(g, "rsqrt(v + eps)", {{"v", var}}, {{"eps", eps}});
  const Value y =
      g.Op("batch_norm_apply", {in[0], mean, rstd, scale, bias}, {{"count", count}, {"data_format", format}});
  const Value change = shift == old_mean ? offset : Sub(g, mean, old_mean);
  const Value new_mean = EmitFormula(g, "old + m * d", {{"d", change}, {"old", old_mean}}, {{"m", m}});
  const Value new_var = EmitFormula(g, "(1 - m) * old + m * unbiased * v", {{"v", var}, {"old", old_var}},
                                    {{"m", m}, {"unbiased", unbiased}});
  return {y, new_mean, new_var};
}

TensorType F32(Shape shape) { return {DType::kF32, std::move(shape)}; }

// Operands of a call of the gradients, dy, x, mean, rstd, for formulas over the images.
struct GradientOperands {
  explicit GradientOperands(GradContext& c)
      : g(c.g), attrs(c.attrs), x(g.TypeOf(c.x(1))), statistics(g.TypeOf(c.x(2)).dtype) {
    dy = Cast(g, c.x(0), statistics);
    rstd = Over(c.x(3));
    normal = Mul(g, Sub(g, Cast(g, c.x(1), statistics), Over(c.x(2))), rstd);
  }
  Value Over(Value v) { return OverChannels(g, v, attrs, x.rank()); }
  Value Narrow(Value v) { return Cast(g, v, x.dtype); }
  // The sum over all but the channels.
  Value Sum(Value v) {
    std::vector<int64_t> axes;
    const int64_t channels = attrs.Str("data_format") == "NHWC" ? x.rank() - 1 : 1;
    for (int64_t a = 0; a < x.rank(); ++a) {
      if (a != channels) axes.push_back(a);
    }
    return ReduceSum(g, v, axes, false);
  }

  GraphBuilder& g;
  const Attrs& attrs;
  const TensorType x;
  const DType statistics;
  Value dy, rstd, normal;
};

// With n = (x - mean) * rstd, what is differentiated is the sum of u * dy + v * dy * n.
std::vector<Value> GradStatsGrad(GradContext& c) {
  GradientOperands of(c);
  GraphBuilder& g = of.g;
  const auto gradient = [&](size_t i) { return c.dy[i].valid() ? c.dy[i] : ZerosLike(g, c.outputs[i]); };
  const Value v = of.Over(gradient(1)), dnormal = Mul(g, v, of.dy);
  const Value dx = Mul(g, dnormal, of.rstd);
  return {of.Narrow(Add(g, of.Over(gradient(0)), Mul(g, v, of.normal))), of.Narrow(dx), Mul(g, of.Sum(dx), -1),
          Div(g, of.Sum(Mul(g, dnormal, of.normal)), c.x(3))};
}

// With A, B and C the sums of u, u * dy and u * n, what is differentiated is the sum over channels of
// scale * rstd * (B - (dbias * A + dscale * C) / count).
std::vector<Value> GradApplyGrad(GradContext& c) {
  GradientOperands of(c);
  GraphBuilder& g = of.g;
  const double count = static_cast<double>(c.attrs.Int("count"));
  const Value u = Cast(g, c.dy[0], of.statistics);
  const std::vector<std::pair<std::string, Value>> sums = {{"A", of.Sum(u)},
                                                           {"B", of.Sum(Mul(g, u, of.dy))},
                                                           {"C", of.Sum(Mul(g, u, of.normal))},
                                                           {"r", c.x(3)},
                                                           {"scale", c.x(4)},
                                                           {"dbias", c.x(5)},
                                                           {"dscale", c.x(6)}};
  const auto formula = [&](absl::string_view text) {
    return EmitFormula(g, text, sums, {{"inverse", count > 0 ? 1 / count : 0.0}});
  };
  const Value by_u = of.Over(formula("scale * r"));
  return {of.Narrow(Mul(g, u, by_u)),
          of.Narrow(Mul(g, u, of.Over(formula("-scale * r * r * dscale * inverse")))),
          formula("scale * r * r * dscale * inverse * A"),
          formula("scale * (B - (dbias * A + 2 * dscale * C) * inverse)"),
          formula("r * (B - (dbias * A + dscale * C) * inverse)"),
          formula("-scale * r * A * inverse"),
          formula("-scale * r * C * inverse")};
}

// Two images, then vectors: f32.
std::vector<TensorType> GradientSample(const Shape& images, int64_t channels, int vectors) {
  std::vector<TensorType> types(2, F32(images));
  types.resize(2 + vectors, F32({channels}));
  return types;
}

OpDef GradStats(bool relu) {
  OpDef op(relu ? "batch_norm_relu_grad_stats" : "batch_norm_grad_stats");
  op.Doc(
      StrCat("The gradients of batch_norm_apply's bias and scale: the sums over all but the channels of dy and of dy * "
             "(x - mean) * rstd",
             relu ? ", where dy is the gradient of a relu of the result: it counts where that is positive." : "."));
  op.Input("dy").Input("x").Input("mean", TypeClass::kFloat).Input("rstd", TypeClass::kFloat);
  if (relu) op.Input("scale", TypeClass::kFloat).Input("bias", TypeClass::kFloat);
  op.Outputs({"dbias", "dscale"});
  const int vectors = relu ? 4 : 2;
  DeclareChannels(op, 2, vectors, 2);
  if (!relu) op.Grad(GradStatsGrad);
  op.Reference([relu](const OpCall& call) { return GradStatsReference(call, relu); });
  op.OnDevice([relu](const OpSpec& s) { return GradStatsOnDevice(s, relu); });
  op.Fast(HighwayBatchNormGradStats(relu));
  op.AddSample({GradientSample({2, 3, 3, 5}, 3, vectors)});
  op.AddSample({GradientSample({4, 3, 2, 67}, 67, vectors), {{"data_format", std::string("NHWC")}}});
  return op;
}

OpDef GradApply(bool relu) {
  OpDef op(relu ? "batch_norm_relu_grad_apply" : "batch_norm_grad_apply");
  op.Doc(
      StrCat("The gradient of batch_norm_apply's x: scale * rstd * (dy - (dbias + (x - mean) * rstd * dscale) / "
             "count); with count 0 the first term alone",
             relu ? "; dy is the gradient of a relu of the result and counts where that is positive." : "."));
  op.Input("dy").Input("x").Input("mean", TypeClass::kFloat).Input("rstd", TypeClass::kFloat);
  op.Input("scale", TypeClass::kFloat);
  if (relu) op.Input("bias", TypeClass::kFloat);
  op.Input("dbias", TypeClass::kFloat).Input("dscale", TypeClass::kFloat).Outputs({"dx"});
  op.Attr("count", AttrKind::kInt, int64_t{0}, "batch_norm_apply's");
  const int vectors = relu ? 6 : 5;
  DeclareChannels(op, 2, vectors, 0);
  if (!relu) op.Grad(GradApplyGrad);
  op.Reference([relu](const OpCall& call) { return GradApplyReference(call, relu); });
  op.OnDevice([relu](const OpSpec& s) { return GradApplyOnDevice(s, relu); });
  op.Fast(HighwayBatchNormGradApply(relu)).InPlace(0, 0).InPlace(0, 1);
  op.AddSample({GradientSample({2, 3, 3, 5}, 3, vectors), {{"count", int64_t{30}}}, 0.5, 1.5});
  op.AddSample({GradientSample({4, 3, 2, 67}, 67, vectors),
                {{"count", int64_t{24}}, {"data_format", std::string("NHWC")}},
                relu ? -1.0 : 0.5,
                1.5});
  return op;
}

}  // namespace

MSLUA_OPERATOR(batch_norm) {
  const auto f32 = F32;
  const Attrs last = {{"data_format", std::string("NHWC")}};

  OpDef stats("batch_norm_stats");
  stats.Doc(
      "The sums over all but the channels of x - shift and of (x - shift)^2; x [n, c, ..], shift [c]. In f64, which "
      "keeps the variance's digits where the mean is far from the shift. Sums of parts add up. batch_norm shifts by "
      "the running mean, and x of f64 by its own.");
  stats.Input("x").Input("shift", TypeClass::kFloat).Outputs({"sum", "square_sum"});
  DeclareChannels(stats, 1, 1, 2, DType::kF64);
  stats.Grad(StatsGrad).Reference(StatsReference).OnDevice(StatsOnDevice).Fast(HighwayBatchNormStats());
  stats.AddSample({{f32({2, 3, 3, 5}), f32({3})}});
  stats.AddSample({{f32({4, 3, 2, 67}), f32({67})}, last});

  OpDef apply("batch_norm_apply");
  apply.Doc("y = (x - mean) * rstd * scale + bias for x [n, c, ..] and vectors [c].");
  apply.Input("x")
      .Input("mean", TypeClass::kFloat)
      .Input("rstd", TypeClass::kFloat)
      .Input("scale", TypeClass::kFloat)
      .Input("bias", TypeClass::kFloat);
  apply.Attr("count", AttrKind::kInt, int64_t{0}, kCountDoc);
  DeclareChannels(apply, 1, 4, 0);
  apply.Grad(ApplyGrad).Reference(ApplyReference).OnDevice(ApplyOnDevice).Fast(HighwayBatchNormApply()).InPlace(0, 0);
  apply.AddSample({{f32({2, 3, 3, 5}), f32({3}), f32({3}), f32({3}), f32({3})}, {}, 0.5, 1.5});
  apply.AddSample({{f32({4, 3, 2, 67}), f32({67}), f32({67}), f32({67}), f32({67})}, last, 0.5, 1.5});

  OpDef op("batch_norm");
  op.Class("BatchNorm");
  op.Doc(
      "Normalises each channel of x [n, c, ..] to mean 0 and variance 1, then scales and shifts. Training: with the "
      "batch's statistics, and gives the running ones moved towards them (their variance unbiased, as PyTorch's): new "
      "= (1 - momentum) * old + momentum * batch. Otherwise: with the running statistics, which it gives back.");
  op.Input("x")
      .Input("scale", TypeClass::kFloat)
      .Input("bias", TypeClass::kFloat)
      .Input("mean", TypeClass::kFloat)
      .Input("variance", TypeClass::kFloat);
  op.Outputs({"y", "new_mean", "new_variance"});
  op.Attr("training", AttrKind::kBool, true, "true: the batch's statistics; false: the running ones")
      .Attr("momentum", AttrKind::kFloat, 0.1, "the weight of the batch")
      .Attr("eps", AttrKind::kFloat, 1e-5, "added to the variance, so that its root is never 0");
  op.Choice("data_format", {"NCHW", "NHWC"}, "where x's channels are");
  op.Check([](const Attrs& a, absl::Span<const TensorType> in) -> Status {
    if (in[0].rank() < 2) return absl::InvalidArgumentError("x needs 2 or more dimensions");
    const Shape c = {Channels::Of(a, in[0].shape).channels};
    const DType wanted = in[0].dtype == DType::kF64 ? DType::kF64 : DType::kF32;
    for (int i = 1; i < 5; ++i) {
      if (in[i].shape != c) return absl::InvalidArgumentError(StrCat("expected [", c[0], "], one element a channel"));
      if (i >= 3 && in[i].dtype != wanted)
        return absl::InvalidArgumentError(StrCat("running statistics are ", Name(wanted), " here"));
    }
    return absl::OkStatus();
  });
  op.Body(Body);
  op.AddSample({{f32({3, 2, 2, 3}), f32({2}), f32({2}), f32({2}), f32({2})}, {}, 0.5, 1.5});
  op.AddSample({{f32({5, 3}), f32({3}), f32({3}), f32({3}), f32({3})}, {{"training", false}}, 0.5, 1.5});
  return {op, stats, apply, GradStats(false), GradApply(false), GradStats(true), GradApply(true)};
}

MSLUA_ONNX(batch_norm_apply) {
  const bool last = c.attrs().Str("data_format") == "NHWC" || c.TypeIn().rank() <= 2;
  std::vector<onnx::Dim> dims = {{c.TypeIn(1).elements(), 0}};
  for (int64_t d = 2; !last && d < c.TypeIn().rank(); ++d) dims.push_back({1, 0});
  const DType wide = c.TypeIn(1).dtype, type = c.TypeIn().dtype;
  const auto vector = [&](size_t i) { return last ? c.In(i) : c.Reshape(c.In(i), dims); };
  std::string y = c.Op("Sub", {type == wide ? c.In(0) : c.Cast(c.In(0), wide), vector(1)});
  y = c.Op("Add", {c.Op("Mul", {y, c.Op("Mul", {vector(2), vector(3)})}), vector(4)});
  c.Result(type == wide ? y : c.Cast(y, type));
}

}  // namespace mslua
