// Group normalisation in operators that can be sharded by sample and by group; their images are [n, c, h, w].

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/kernels/dispatch.h"
#include "core/onnx/lowering.h"
#include "core/op/device_text.h"
#include "core/ops/declare/row_norm.h"
#include "core/ops/define.h"

namespace mslua {

// group_norm_highway.cc
// f32 and bf16 with f32 statistics.
FastKernel HighwayGroupNorm(bool gradient);

namespace {

using absl::StrCat;

// x is [samples, channels, inner], or with `last` [samples, inner, channels].
struct GroupNorm {
  int64_t samples = 0, channels = 0, inner = 0, groups = 1;
  bool last = false;
  double eps = 0;

  int64_t group_channels() const { return channels / groups; }
  // Elements of a group of one sample.
  int64_t size() const { return group_channels() * inner; }
  // Where the element of that sample and channel at `i`, below inner, is.
  int64_t At(int64_t sample, int64_t channel, int64_t i) const {
    return last ? (sample * inner + i) * channels + channel : (sample * channels + channel) * inner + i;
  }
};

// The sizes of a call on images of shape x.
GroupNorm SizesOf(const Attrs& attrs, const Shape& x) {
  GroupNorm n;
  n.last = attrs.Str("data_format") == "NHWC";
  n.groups = attrs.Int("groups");
  n.samples = x[0];
  n.channels = x[n.last ? 3 : 1];
  n.inner = n.last ? x[1] * x[2] : x[2] * x[3];
  n.eps = attrs.Has("eps") ? attrs.Float("eps") : 0;
  return n;
}

// Channels are groups of k neighbours.
std::string ImageDims(const Attrs& a) { return a.Str("data_format") == "NHWC" ? "n !h !w (g !k)" : "n (g !k) !h !w"; }

// `images` operands, which come first, are checked; so is the number of groups. The results are as `results` says.
void Declare(OpDef& op, int images,
             std::function<std::vector<TensorType>(const GroupNorm&, const TensorType& x, DType statistics)> results) {
  op.Required("groups", AttrKind::kInt, "a divisor of the channels");
  op.Choice("data_format", {"NCHW", "NHWC"}, "where x's channels are");
  op.Infer([=](const Attrs& a, absl::Span<const TensorType> in) -> StatusOr<std::vector<TensorType>> {
    for (int i = 0; i < images; ++i) {
      if (in[i].rank() != 4) return absl::InvalidArgumentError("the images need 4 dimensions");
      if (in[i].shape != in[0].shape) return absl::InvalidArgumentError("dy and x differ");
    }
    const GroupNorm n = SizesOf(a, in[0].shape);
    const int64_t groups = a.Int("groups");
    if (groups < 1 || n.channels % groups != 0) {
      return absl::InvalidArgumentError(
          StrCat("groups is ", groups, ", expected a divisor of ", n.channels, " channels"));
    }
    const DType wanted = StatisticsType(in[0].dtype);
    for (size_t i = images; i < in.size(); ++i) {
      const bool statistic = op.inputs[i].name == "mean" || op.inputs[i].name == "rstd";
      if (in[i].dtype != wanted)
        return absl::InvalidArgumentError(StrCat("parameters and statistics are ", Name(wanted), " here"));
      if (in[i].shape != (statistic ? Shape{n.samples, groups} : Shape{n.channels}))
        return absl::InvalidArgumentError(StrCat(op.inputs[i].name, " is ", ToString(in[i])));
    }
    return results(n, in[0], wanted);
  });
  op.Localize([](const LocalizeCall& c) -> StatusOr<Attrs> {
    Attrs attrs = c.attrs;
    const bool last = attrs.Str("data_format") == "NHWC";
    const auto channels = [&](const TensorType& x) { return x.shape[last ? 3 : 1]; };
    const int64_t of_group = channels(c.global_inputs[0]) / attrs.Int("groups");
    if (of_group == 0) return attrs;
    return attrs.Set("groups", channels(c.local_inputs[0]) / of_group);
  });
}

// f(element, channel) for the elements of a group of a sample, channel by channel.
template <class F>
void ForEachOf(const GroupNorm& n, int64_t sample, int64_t group, F f) {
  for (int64_t c = group * n.group_channels(); c < (group + 1) * n.group_channels(); ++c) {
    for (int64_t i = 0; i < n.inner; ++i) f(n.At(sample, c, i), c);
  }
}

double At(const TensorView& v, int64_t i) { return LoadAsDouble(v.type.dtype, v.data, i); }
void Put(const TensorView& v, int64_t i, double value) { StoreDouble(v.type.dtype, v.data, i, value); }

Status ApplyReference(const OpCall& call) {
  const GroupNorm n = SizesOf(call.attrs, call.inputs[0].type.shape);
  const TensorView scale = call.inputs[1], bias = call.inputs[2];
  DispatchFloat(call.inputs[0].type.dtype, [&](auto zero) {
    using T = decltype(zero);
    const T* x = call.inputs[0].as<T>();
    T* y = call.outputs[0].as<T>();
    for (int64_t r = 0; r < n.samples * n.groups; ++r) {
      double mean = 0, squares = 0;
      const auto each = [&](auto f) { ForEachOf(n, r / n.groups, r % n.groups, f); };
      each([&](int64_t i, int64_t) { mean += static_cast<double>(x[i]); });
      mean /= static_cast<double>(n.size());
      each([&](int64_t i, int64_t) {
        const double d = static_cast<double>(x[i]) - mean;
        squares += d * d;
      });
      const double rstd = 1 / std::sqrt(squares / static_cast<double>(n.size()) + n.eps);
      each([&](int64_t i, int64_t c) {
        y[i] = static_cast<T>(
            static_cast<ComputeType<T>>((static_cast<double>(x[i]) - mean) * rstd * At(scale, c) + At(bias, c)));
      });
      Put(call.outputs[1], r, mean);
      Put(call.outputs[2], r, rstd);
    }
  });
  return absl::OkStatus();
}

Status GradReference(const OpCall& call) {
  const GroupNorm n = SizesOf(call.attrs, call.inputs[0].type.shape);
  const TensorView scale = call.inputs[4];
  DispatchFloat(call.inputs[0].type.dtype, [&](auto zero) {
    using T = decltype(zero);
    const T *dy = call.inputs[0].as<T>(), *x = call.inputs[1].as<T>();
    T* dx = call.outputs[0].as<T>();
    std::vector<double> dscale(n.channels), dbias(n.channels);
    for (int64_t r = 0; r < n.samples * n.groups; ++r) {
      const double m = At(call.inputs[2], r), rstd = At(call.inputs[3], r);
      const auto each = [&](auto f) { ForEachOf(n, r / n.groups, r % n.groups, f); };
      const auto normal = [&](int64_t i) { return (static_cast<double>(x[i]) - m) * rstd; };
      const int64_t first = r % n.groups * n.group_channels(), last = first + n.group_channels();
      std::fill(dscale.begin() + first, dscale.begin() + last, 0.0);
      std::fill(dbias.begin() + first, dbias.begin() + last, 0.0);
      each([&](int64_t i, int64_t c) {
        dbias[c] += static_cast<double>(dy[i]);
        dscale[c] += static_cast<double>(dy[i]) * normal(i);
      });
      double mean = 0, slope = 0;
      for (int64_t c = first; c < last; ++c) {
        mean += dbias[c] * At(scale, c) / static_cast<double>(n.size());
        slope += dscale[c] * At(scale, c) / static_cast<double>(n.size());
        Put(call.outputs[1], r / n.groups * n.channels + c, dscale[c]);
        Put(call.outputs[2], r / n.groups * n.channels + c, dbias[c]);
      }
      each([&](int64_t i, int64_t c) {
        const double d = rstd * (static_cast<double>(dy[i]) * At(scale, c) - mean - normal(i) * slope);
        dx[i] = static_cast<T>(static_cast<ComputeType<T>>(d));
      });
    }
  });
  return absl::OkStatus();
}

// Of a group of a sample: `at(c, i)` is the place of element i of its channel c.
std::string GroupText(const GroupNorm& n, DType statistics) {
  return StrCat("  typedef ", DeviceType(statistics), " C;\n", Constant("channels", n.channels),
                Constant("inner", n.inner), Constant("groups", n.groups), Constant("k", n.group_channels()),
                "  const i64 sample = row / groups, first = row % groups * k;\n  const auto at = [&](i64 c, i64 i) { ",
                n.last ? "return (sample * inner + i) * channels + first + c;"
                       : "return (sample * channels + first + c) * inner + i;",
                " };\n");
}

DeviceProgram ApplyOnDevice(const OpSpec& spec) {
  const GroupNorm n = SizesOf(spec.attrs, spec.inputs[0].shape);
  return OneStep(EachRow(n.samples * n.groups, n.size(),
                         StrCat(GroupText(n, spec.outputs[1].dtype), "  const C eps = (C)", NumberText(n.eps), ";\n",
                                R"cuda(
  C mean = 0, squares = 0;
  for (i64 e = team.lane; e < k * inner; e += team.lanes) mean += (C)Get(x0[at(e / inner, e % inner)]);
  mean = team.Sum(mean) / (C)(k * inner);
  for (i64 e = team.lane; e < k * inner; e += team.lanes) {
    const C d = (C)Get(x0[at(e / inner, e % inner)]) - mean;
    squares += d * d;
  }
  const C rstd = (C)1 / Sqrt(team.Sum(squares) / (C)(k * inner) + eps);
  for (i64 e = team.lane; e < k * inner; e += team.lanes) {
    const i64 c = e / inner, place = at(c, e % inner);
    Set(y0[place], ((C)Get(x0[place]) - mean) * rstd * x1[first + c] + x2[first + c]);
  }
  if (team.lane == 0) {
    y1[row] = mean;
    y2[row] = rstd;
  })cuda")));
}

DeviceProgram GradOnDevice(const OpSpec& spec) {
  const GroupNorm n = SizesOf(spec.attrs, spec.inputs[0].shape);
  return OneStep(EachRow(n.samples * n.groups, n.size(), StrCat(GroupText(n, spec.outputs[1].dtype), R"cuda(
  const C m = x2[row], rstd = x3[row];
  C mean = 0, slope = 0;
  for (i64 c = 0; c < k; ++c) {
    C sum = 0, product = 0;
    for (i64 i = team.lane; i < inner; i += team.lanes) {
      const C g = (C)Get(x0[at(c, i)]);
      sum += g;
      product += g * ((C)Get(x1[at(c, i)]) - m) * rstd;
    }
    sum = team.Sum(sum);
    product = team.Sum(product);
    mean += sum * x4[first + c];
    slope += product * x4[first + c];
    if (team.lane == 0) {
      y1[sample * channels + first + c] = product;
      y2[sample * channels + first + c] = sum;
    }
  }
  mean /= (C)(k * inner);
  slope /= (C)(k * inner);
  for (i64 e = team.lane; e < k * inner; e += team.lanes) {
    const i64 c = e / inner, place = at(c, e % inner);
    const C normal = ((C)Get(x1[place]) - m) * rstd;
    Set(y0[place], rstd * ((C)Get(x0[place]) * x4[first + c] - mean - normal * slope));
  })cuda")));
}

// Values of a call as [n, groups, k, h * w] in the type of statistics, for formulas.
class Groups {
 public:
  Groups(GraphBuilder& g, const Attrs& attrs, const TensorType& x)
      : g_(g),
        n_(SizesOf(attrs, x.shape)),
        x_(x),
        statistics_(StatisticsType(x.dtype)),
        full_{n_.samples, n_.groups, n_.group_channels(), n_.inner} {}

  Value Images(Value v) {
    if (n_.last) v = Transpose(g_, v, {0, 3, 1, 2});
    return Reshape(g_, Cast(g_, v, statistics_), full_);
  }
  Value FromImages(Value v) {
    v = BroadcastTo(g_, v, full_);
    if (!n_.last) return Cast(g_, Reshape(g_, v, x_.shape), x_.dtype);
    v = Reshape(g_, v, {x_.shape[0], x_.shape[3], x_.shape[1], x_.shape[2]});
    return Cast(g_, Transpose(g_, v, {0, 2, 3, 1}), x_.dtype);
  }
  Value OfGroups(Value v) { return Reshape(g_, v, {n_.samples, n_.groups, 1, 1}); }
  Value OfChannels(Value v) { return Reshape(g_, v, {1, n_.groups, n_.group_channels(), 1}); }
  Value OfRows(Value v) { return Reshape(g_, v, {n_.samples, n_.groups, n_.group_channels(), 1}); }
  // Sums over a group, in the shape [n, groups, 1, 1]; over all but the channels, [c].
  Value SumOfGroup(Value v) { return ReduceSum(g_, BroadcastTo(g_, v, full_), {2, 3}, true); }
  Value SumOfChannel(Value v) {
    return Reshape(g_, ReduceSum(g_, BroadcastTo(g_, v, full_), {0, 3}, false), {n_.channels});
  }
  Value Statistic(Value v) { return Reshape(g_, v, {n_.samples, n_.groups}); }
  double inverse() const { return n_.size() == 0 ? 0 : 1 / static_cast<double>(n_.size()); }

 private:
  GraphBuilder& g_;
  const GroupNorm n_;
  const TensorType x_;
  const DType statistics_;
  const Shape full_;
};

std::vector<Value> ApplyGrad(GradContext& c) {
  GraphBuilder& g = c.g;
  const TensorType x = g.TypeOf(c.x(0));
  const Value mean = c.outputs[1], rstd = c.outputs[2];
  const Value dy = c.dy[0].valid() ? c.dy[0] : ZerosLike(g, c.x(0));
  const Attrs attrs = {{"groups", c.attrs.Int("groups")}, {"data_format", c.attrs.Str("data_format")}};
  const std::vector<Value> all = g.OpMulti("group_norm_grad", {dy, c.x(0), mean, rstd, c.x(1)}, attrs);
  if (!g.status().ok()) return std::vector<Value>(3);
  std::vector<Value> d = {all[0], ReduceSum(g, all[1], {0}, false), ReduceSum(g, all[2], {0}, false)};
  // What flows back through the statistics themselves, when they are used.
  Groups of(g, c.attrs, x);
  const auto add = [&](absl::string_view formula, Value statistic_dy) {
    const Value term = EmitFormula(g, formula,
                                   {{"x", of.Images(c.x(0))},
                                    {"mean", of.OfGroups(mean)},
                                    {"rstd", of.OfGroups(rstd)},
                                    {"dy", of.OfGroups(statistic_dy)}},
                                   {{"inverse", of.inverse()}});
    d[0] = Add(g, d[0], of.FromImages(term));
  };
  if (c.dy[1].valid()) add("dy * inverse", c.dy[1]);
  if (c.dy[2].valid()) add("-dy * rstd * rstd * rstd * (x - mean) * inverse", c.dy[2]);
  return d;
}

// With u, v, w the gradients of dx, dscale and dbias, a = dy * scale and n = (x - mean) * rstd, and sums over a group
// of `size` elements, what is differentiated is
//   rstd * (sum(u * a) - sum(u) * sum(a) / size - sum(u * n) * sum(a * n) / size) + sum(v * dy * n) + sum(w * dy).
std::vector<Value> GradGrad(GradContext& c) {
  GraphBuilder& g = c.g;
  const TensorType x = g.TypeOf(c.x(0));
  Groups of(g, c.attrs, x);
  const Value rstd = of.OfGroups(c.x(3)), scale = of.OfChannels(c.x(4)), dy = of.Images(c.x(0));
  const Value h = EmitFormula(g, "x - mean", {{"x", of.Images(c.x(1))}, {"mean", of.OfGroups(c.x(2))}});
  const Value n = Mul(g, h, rstd), a = Mul(g, dy, scale);
  const Value u = c.dy[0].valid() ? of.Images(c.dy[0]) : ZerosLike(g, dy);
  const auto row = [&](size_t i) { return of.OfRows(c.dy[i].valid() ? c.dy[i] : ZerosLike(g, c.outputs[i])); };
  const Value v = row(1), w = row(2);
  const auto mean_of = [&](Value t) { return Mul(g, of.SumOfGroup(t), of.inverse()); };
  const Value mu = mean_of(u), su = mean_of(Mul(g, u, n)), sa = mean_of(Mul(g, a, n));
  // The gradients of a and of n.
  const Value q = EmitFormula(g, "r * (u - mu - n * su)", {{"r", rstd}, {"u", u}, {"mu", mu}, {"n", n}, {"su", su}});
  const Value e = EmitFormula(g, "v * dy - r * (u * sa + a * su)",
                              {{"v", v}, {"dy", dy}, {"r", rstd}, {"u", u}, {"sa", sa}, {"a", a}, {"su", su}});
  const Value dh = Mul(g, e, rstd);
  const Value inner = EmitFormula(g, "u * a - mu * a - su * a * n + e * h",
                                  {{"u", u}, {"a", a}, {"mu", mu}, {"su", su}, {"n", n}, {"e", e}, {"h", h}});
  return {of.FromImages(
              EmitFormula(g, "scale * q + v * n + w", {{"scale", scale}, {"q", q}, {"v", v}, {"n", n}, {"w", w}})),
          of.FromImages(dh), of.Statistic(Mul(g, of.SumOfGroup(dh), -1)), of.Statistic(of.SumOfGroup(inner)),
          of.SumOfChannel(Mul(g, dy, q))};
}

// Shapes of images and the attributes of calls on them.
std::vector<std::pair<Shape, Attrs>> Samples() {
  const auto of = [](int64_t groups, const char* format) {
    return Attrs{{"groups", groups}, {"data_format", std::string(format)}};
  };
  return {{{2, 4, 3, 2}, of(2, "NCHW")},
          {{2, 6, 5, 7}, of(2, "NCHW")},
          {{2, 5, 3, 24}, of(8, "NHWC")},
          {{1, 3, 2, 70}, of(2, "NHWC")}};
}

constexpr char kEpsDoc[] = "added to the variance, so that its root is never 0";

OpDef Apply() {
  OpDef op("group_norm_apply");
  op.Doc(
      "y = (x - mean) * rstd * scale + bias, with mean and variance over each group of each sample, rstd = 1 / "
      "sqrt(variance + eps). x [n, c, h, w], scale and bias [c] in f32 (f64 for f64); gives y like x, and mean and "
      "rstd "
      "[n, groups].");
  op.Input("x").Input("scale", TypeClass::kFloat).Input("bias", TypeClass::kFloat).Outputs({"y", "mean", "rstd"});
  op.Attr("eps", AttrKind::kFloat, 1e-5, kEpsDoc);
  op.Rule([](const Attrs& a, absl::Span<const TensorType>) {
    return StrCat(ImageDims(a), ", (g !k), (g !k) -> ", ImageDims(a), ", n g, n g");
  });
  Declare(op, 1, [](const GroupNorm& n, const TensorType& x, DType statistics) {
    const TensorType statistic = {statistics, {n.samples, n.groups}};
    return std::vector<TensorType>{x, statistic, statistic};
  });
  op.Grad(ApplyGrad).Reference(ApplyReference).OnDevice(ApplyOnDevice).Fast(HighwayGroupNorm(false)).InPlace(0, 0);
  for (const auto& [x, attrs] : Samples()) {
    const TensorType vector = {DType::kF32, {SizesOf(attrs, x).channels}};
    op.AddSample({{{DType::kF32, x}, vector, vector}, attrs, 0.5, 2});
  }
  return op;
}

OpDef Grad() {
  OpDef op("group_norm_grad");
  op.Doc(
      "The gradients of group_norm_apply: of x, and each sample's own part [n, c] of those of scale and bias. dy and x "
      "[n, c, h, w], mean and rstd [n, groups], scale [c].");
  op.Input("dy").Input("x");
  op.Input("mean", TypeClass::kFloat).Input("rstd", TypeClass::kFloat).Input("scale", TypeClass::kFloat);
  op.Outputs({"dx", "dscale", "dbias"});
  op.Rule([](const Attrs& a, absl::Span<const TensorType>) {
    const std::string images = ImageDims(a);
    return StrCat(images, ", ", images, ", n g, n g, (g !k) -> ", images, ", n (g !k), n (g !k)");
  });
  Declare(op, 2, [](const GroupNorm& n, const TensorType& x, DType statistics) {
    const TensorType row = {statistics, {n.samples, n.channels}};
    return std::vector<TensorType>{x, row, row};
  });
  op.Grad(GradGrad).Reference(GradReference).OnDevice(GradOnDevice).Fast(HighwayGroupNorm(true));
  op.InPlace(0, 0).InPlace(0, 1);
  for (const auto& [x, attrs] : Samples()) {
    const GroupNorm n = SizesOf(attrs, x);
    const TensorType images = {DType::kF32, x}, statistic = {DType::kF32, {n.samples, n.groups}};
    op.AddSample({{images, images, statistic, statistic, {DType::kF32, {n.channels}}}, attrs, 0.5, 1.5});
  }
  return op;
}

}  // namespace

MSLUA_OPERATOR(group_norm) {
  OpDef op("group_norm");
  op.Computes(Precision::kWide);
  op.Class("GroupNorm");
  op.Doc(
      "Group normalisation (Wu and He, 2018): each sample's channels, in `groups` groups of neighbours, are taken to "
      "mean 0 and variance 1, then scaled and shifted by channel. x [n, c, ..], scale and bias [c]; y like x. "
      "Statistics are in f32 (f64 for f64).");
  op.Input("x").Input("scale", TypeClass::kFloat).Input("bias", TypeClass::kFloat);
  op.Required("groups", AttrKind::kInt, "a divisor of the channels").Attr("eps", AttrKind::kFloat, 1e-5, kEpsDoc);
  op.Check([](const Attrs& a, absl::Span<const TensorType> in) -> Status {
    if (in[0].rank() < 2) return absl::InvalidArgumentError("x needs 2 or more dimensions, [n, c, ..]");
    const int64_t c = in[0].shape[1], groups = a.Int("groups");
    if (groups < 1 || c % groups != 0)
      return absl::InvalidArgumentError(StrCat("groups is ", groups, ", expected a divisor of ", c, " channels"));
    if (in[1].shape != Shape{c} || in[2].shape != Shape{c})
      return absl::InvalidArgumentError(StrCat("expected [", c, "], one element a channel"));
    return absl::OkStatus();
  });
  op.Body([](GraphBuilder& g, absl::Span<const Value> in, const Attrs& a) -> std::vector<Value> {
    const TensorType x = g.TypeOf(in[0]);
    const DType statistics = StatisticsType(x.dtype);
    Shape images = x.shape;
    if (images.size() > 4) images = {x.shape[0], x.shape[1], NumElements(absl::MakeConstSpan(x.shape).subspan(2))};
    images.resize(4, 1);
    // f16 has no kernel of its own.
    const Value wide = x.dtype == DType::kF16 ? Cast(g, in[0], statistics) : in[0];
    const std::vector<Value> y = g.OpMulti(
        "group_norm_apply", {Reshape(g, wide, images), Cast(g, in[1], statistics), Cast(g, in[2], statistics)},
        {{"groups", a.Int("groups")}, {"eps", a.Float("eps")}});
    if (!g.status().ok()) return std::vector<Value>(1);
    return {Cast(g, Reshape(g, y[0], x.shape), x.dtype)};
  });
  op.AddSample(
      {{{DType::kF32, {2, 4, 3, 2}}, {DType::kF32, {4}}, {DType::kF32, {4}}}, {{"groups", int64_t{2}}}, 0.5, 2});
  op.AddSample({{{DType::kF32, {3, 6}}, {DType::kF32, {6}}, {DType::kF32, {6}}}, {{"groups", int64_t{2}}}, 0.5, 2});
  return {op, Apply(), Grad()};
}

MSLUA_ONNX(group_norm_apply) {
  const bool last = c.attrs().Str("data_format") == "NHWC";
  const DType wide = c.TypeIn(1).dtype, type = c.TypeIn().dtype;
  const int64_t channels = c.TypeIn(1).elements(), groups = c.attrs().Int("groups");
  const std::string x = type == wide ? c.In(0) : c.Cast(c.In(0), wide);
  const Shape& images = c.TypeIn().shape;
  std::vector<onnx::Dim> rows = c.DimsOut(1), dims = c.DimsOut(0);
  rows.push_back({images[1] * images[2] * images[3] / groups, 0});
  if (last) dims = {dims[0], dims[3], dims[1], dims[2]};
  const auto all = [&](double value) {
    TensorType t = {wide, {groups}};
    std::string bytes(static_cast<size_t>(t.bytes()), '\0');
    for (int64_t i = 0; i < groups; ++i) StoreDouble(wide, &bytes[0], i, value);
    return c.Tensor(t, bytes);
  };
  const std::string normal =
      c.Op("InstanceNormalization", {c.Reshape(onnx::ToChannelsFirst(c, x), rows), all(1), all(0)},
           {{"epsilon", static_cast<float>(c.attrs().Float("eps"))}});
  const auto vector = [&](size_t i) { return c.Reshape(c.In(i), {{channels, 0}, {1, 0}, {1, 0}}); };
  const std::string scaled = c.Op("Add", {c.Op("Mul", {c.Reshape(normal, dims), vector(1)}), vector(2)});
  const std::string y = onnx::FromChannelsFirst(c, scaled);
  c.Result(type == wide ? y : c.Cast(y, type));
}

}  // namespace mslua
