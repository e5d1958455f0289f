#include "core/ops/declare/softmax.h"

#include "absl/strings/str_cat.h"
#include "core/kernels/simd/softmax.h"

namespace mslua {
namespace {

std::string Rule(const Attrs& attrs, absl::Span<const TensorType> in) {
  std::string dims;
  for (int64_t d = 0; d < in[0].rank(); ++d) absl::StrAppend(&dims, d == attrs.Int("axis") ? " !d" : " d", d);
  return absl::StrCat(dims, " -> ", dims);
}

}  // namespace

void DeclareSoftmax(OpDef& op, bool log) {
  op.Computes(Precision::kWide);
  op.Input("x").Attr("axis", AttrKind::kAxis, int64_t{-1}, "the axis that stays whole");
  op.Rule(Rule).Fast(HighwaySoftmax(log)).InPlace(0, 0);
  ComputesRows(op);
  op.AddSample({{{DType::kF32, {3, 5}}}, {}, -3, 3});
  op.AddSample({{{DType::kF32, {2, 3, 37}}}, {}, -3, 3});
  op.AddSample({{{DType::kF32, {2, 5, 3}}}, {{"axis", int64_t{1}}}, -3, 3});
  op.AddSample({{{DType::kF32, {3, kSoftmaxColumns + 6}}}, {{"axis", int64_t{0}}}, -3, 3});
}

StatusOr<RowForm> SoftmaxForm(const OpSpec& spec, const std::string& y) {
  RowFormula f;
  f.shape = spec.inputs[0].shape;
  f.axes = {spec.attrs.Int("axis")};
  f.operands = {{"x"}};
  f.statements = {"m = row_max(x)", "e = exp(x - m)", "s = row_sum(e)", absl::StrCat("y = ", y)};
  f.results = {{"y"}};
  return FormOf(f, spec);
}

}  // namespace mslua
