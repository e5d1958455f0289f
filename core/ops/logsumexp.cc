#include "core/ops/define.h"

namespace mslua {

// A composite. The maximum comes off first, so that nothing overflows; where it is infinite, 0 does.
MSLUA_OPERATOR(logsumexp) {
  OpDef op("logsumexp");
  op.Class("LogSumExp").Doc("The logarithm of the sum of exp(x) over `axis` (every axis when none is named).");
  op.Input("x");
  op.Attr("axis", AttrKind::kAxes, std::vector<int64_t>{}, "the axes to reduce; none: all")
      .Attr("keep_dims", AttrKind::kBool, false, "reduced axes stay, with size 1");
  op.Body([](GraphBuilder& g, absl::Span<const Value> in, const Attrs& attrs) -> std::vector<Value> {
    const DType own = g.TypeOf(in[0]).dtype, computed = ArithmeticType(own);
    const Value x = Cast(g, in[0], computed);
    Attrs keep = attrs;
    keep.Set("keep_dims", true);
    const Value largest = g.Op("stop_gradient", {g.Op("reduce_max", {x}, keep)});
    const Value finite = g.Op("isfinite", {largest});
    const Value shift = Elementwise(g, "select", {finite, largest, g.Constant(0, computed)});
    const Value sum = g.Op("reduce_sum", {g.Op("exp", {Sub(g, x, BroadcastTo(g, shift, g.TypeOf(x).shape))})}, attrs);
    const Value y = Add(g, g.Op("log", {sum}), Reshape(g, shift, g.TypeOf(sum).shape));
    return {Cast(g, y, own)};
  });
  op.AddSample({{{DType::kF32, {3, 5}}}, {}, -3, 3});
  op.AddSample({{{DType::kF32, {2, 3, 5}}}, {{"axis", std::vector<int64_t>{1}}, {"keep_dims", true}}, -3, 3});
  return {op};
}

}  // namespace mslua
