#include "absl/strings/str_cat.h"
#include "core/ops/declare/row_norm.h"
#include "core/ops/define.h"

namespace mslua {

MSLUA_OPERATOR(group_norm) {
  OpDef op("group_norm");
  op.Computes(Precision::kWide);
  op.Class("GroupNorm");
  op.Doc(
      "Group normalisation (Wu and He, 2018): each sample's channels, in `groups` groups of neighbours, are taken to "
      "mean 0 and variance 1, then scaled and shifted by channel. x [n, c, ..], scale and bias [c]; y like x. "
      "Statistics are in f32 (f64 for f64).");
  op.Input("x").Input("scale", TypeClass::kFloat).Input("bias", TypeClass::kFloat);
  op.Required("groups", AttrKind::kInt, "a divisor of the channels").Attr("eps", AttrKind::kFloat, 1e-5);
  op.Check([](const Attrs& a, absl::Span<const TensorType> in) -> Status {
    if (in[0].rank() < 2) return absl::InvalidArgumentError("x needs 2 or more dimensions, [n, c, ..]");
    const int64_t c = in[0].shape[1], groups = a.Int("groups");
    if (groups < 1 || c % groups != 0)
      return absl::InvalidArgumentError(absl::StrCat("groups is ", groups, ", expected a divisor of ", c, " channels"));
    if (in[1].shape != Shape{c} || in[2].shape != Shape{c})
      return absl::InvalidArgumentError(absl::StrCat("expected [", c, "], one element a channel"));
    return absl::OkStatus();
  });
  op.Body([](GraphBuilder& g, absl::Span<const Value> in, const Attrs& a) -> std::vector<Value> {
    const TensorType x = g.TypeOf(in[0]);
    const DType statistics = StatisticsType(x.dtype);
    const int64_t n = x.shape[0], c = x.shape[1], groups = a.Int("groups");
    const int64_t size = n * groups == 0 ? 0 : x.elements() / (n * groups);
    const double inverse = 1 / static_cast<double>(size);
    const Value rows = Reshape(g, Cast(g, in[0], statistics), {n, groups, size});
    const Value mean = Mul(g, ReduceSum(g, rows, {2}, true), inverse);
    const Value centred = Sub(g, rows, mean);
    const Value var = Mul(g, ReduceSum(g, Mul(g, centred, centred), {2}, true), inverse);
    const Value normal = EmitFormula(g, "d * rsqrt(v + eps)", {{"d", centred}, {"v", var}}, {{"eps", a.Float("eps")}});
    Shape channels(x.shape.size(), 1);
    channels[1] = c;
    const Value scale = Reshape(g, Cast(g, in[1], statistics), channels),
                bias = Reshape(g, Cast(g, in[2], statistics), channels);
    return {Cast(
        g, EmitFormula(g, "x * scale + bias", {{"x", Reshape(g, normal, x.shape)}, {"scale", scale}, {"bias", bias}}),
        x.dtype)};
  });
  op.AddSample(
      {{{DType::kF32, {2, 4, 3, 2}}, {DType::kF32, {4}}, {DType::kF32, {4}}}, {{"groups", int64_t{2}}}, 0.5, 2});
  return {op};
}

}  // namespace mslua
