#include "core/ops/define.h"

namespace mslua {

MSLUA_OPERATOR(mse_loss) {
  OpDef op("mse_loss");
  op.Computes(Precision::kWide);
  op.Doc(
      "(x - target)^2 for tensors of one shape: its mean over all elements, its sum, or, with reduction 'none', every "
      "element's.");
  op.Input("x").Input("target").Outputs({"loss"});
  op.Choice("reduction", {"mean", "sum", "none"}, "what becomes of the elements' losses");
  op.Check([](const Attrs&, absl::Span<const TensorType> in) -> Status {
    return in[0].shape == in[1].shape ? absl::OkStatus() : absl::InvalidArgumentError("shapes differ");
  });
  op.Body([](GraphBuilder& g, absl::Span<const Value> in, const Attrs& attrs) -> std::vector<Value> {
    const TensorType type = g.TypeOf(in[0]);
    // Squares and sums of 16-bit numbers are f32, and rounded once.
    const auto wide = [&](Value x) { return Cast(g, x, ArithmeticType(type.dtype)); };
    const Value difference = Sub(g, wide(in[0]), wide(in[1])), square = Mul(g, difference, difference);
    const std::string& reduction = attrs.Str("reduction");
    if (reduction == "none") return {Cast(g, square, type.dtype)};
    std::vector<int64_t> axes;
    for (int64_t d = 0; d < type.rank(); ++d) axes.push_back(d);
    const Value sum = ReduceSum(g, square, axes, false);
    const Value loss = reduction == "sum" ? sum : Mul(g, sum, 1 / static_cast<double>(type.elements()));
    return {Cast(g, loss, type.dtype)};
  });
  op.AddSample({{{DType::kF32, {3, 5}}, {DType::kF32, {3, 5}}}});
  op.AddSample({{{DType::kF32, {3, 5}}, {DType::kF32, {3, 5}}}, {{"reduction", std::string("none")}}});
  return {op};
}

}  // namespace mslua
