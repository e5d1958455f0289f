#include "core/kernels/simd/softmax.h"

#include "absl/strings/str_cat.h"
#include "core/onnx/lowering.h"
#include "core/op/elementwise.h"
#include "core/ops/define.h"

namespace mslua {
namespace {

std::string Rule(const Attrs& attrs, absl::Span<const TensorType> in) {
  std::string dims;
  for (int64_t d = 0; d < in[0].rank(); ++d) absl::StrAppend(&dims, d == attrs.Int("axis") ? " !d" : " d", d);
  return absl::StrCat(dims, " -> ", dims);
}

std::vector<Value> Grad(GradContext& c) {
  const Value s = ReduceSum(c.g, Mul(c.g, c.outputs[0], c.dy[0]), {c.attrs.Int("axis")}, true);
  return {EmitFormula(c.g, "y * (dy - s)", {{"y", c.outputs[0]}, {"s", s}, {"dy", c.dy[0]}})};
}

}  // namespace

MSLUA_OPERATOR(softmax) {
  OpDef op("softmax");
  op.Computes(Precision::kWide);
  op.Class("Softmax").Doc(
      "exp(x) divided by its sum along `axis`; computed from x minus the maximum, so that nothing overflows.");
  op.Input("x").Attr("axis", AttrKind::kAxis, int64_t{-1}, "the axis that stays whole");
  op.Rule(Rule).Grad(Grad).Fast(HighwaySoftmax(false)).InPlace(0, 0);
  ComputesRows(op);
  op.AddSample({{{DType::kF32, {3, 5}}}, {}, -3, 3});
  op.AddSample({{{DType::kF32, {2, 3, 37}}}, {}, -3, 3});
  op.AddSample({{{DType::kF32, {2, 5, 3}}}, {{"axis", int64_t{1}}}, -3, 3});
  op.AddSample({{{DType::kF32, {3, kSoftmaxColumns + 6}}}, {{"axis", int64_t{0}}}, -3, 3});
  return {op};
}

MSLUA_ROWS(softmax) {
  RowFormula f;
  f.shape = spec.inputs[0].shape;
  f.axes = {spec.attrs.Int("axis")};
  f.operands = {{"x"}};
  f.statements = {"m = row_max(x)", "e = exp(x - m)", "s = row_sum(e)", "y = e / s"};
  f.results = {{"y"}};
  return FormOf(f, spec);
}

MSLUA_ONNX(softmax) { c.Result(c.Op("Softmax", {c.In(0)}, {{"axis", c.attrs().Int("axis")}})); }

}  // namespace mslua
