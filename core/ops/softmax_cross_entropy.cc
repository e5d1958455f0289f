#include "core/ops/define.h"

namespace mslua {

MSLUA_OPERATOR(softmax_cross_entropy) {
  OpDef op("softmax_cross_entropy");
  op.Computes(Precision::kWide);
  op.Class("SoftmaxCrossEntropyWithLogits");
  op.Doc(
      "-sum(target * log(softmax(logits))) over the last axis, for logits and target [.., classes]: loss [..]. Targets "
      "are weights of the classes, by custom of sum 1. For class numbers see sparse_softmax_cross_entropy.");
  op.Input("logits").Input("target").Outputs({"loss"});
  op.Check([](const Attrs&, absl::Span<const TensorType> in) -> Status {
    if (in[0].rank() < 1 || in[0].shape != in[1].shape)
      return absl::InvalidArgumentError("logits and target need one shape, [.., classes]");
    return absl::OkStatus();
  });
  op.Body([](GraphBuilder& g, absl::Span<const Value> in, const Attrs&) -> std::vector<Value> {
    const Value terms = Mul(g, in[1], g.Op("log_softmax", {in[0]}));
    return {g.Op("neg", {ReduceSum(g, terms, {g.TypeOf(in[0]).rank() - 1}, false)})};
  });
  op.AddSample({{{DType::kF32, {3, 5}}, {DType::kF32, {3, 5}}}});
  return {op};
}

}  // namespace mslua
