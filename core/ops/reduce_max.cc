#include "core/onnx/lowering.h"
#include "core/ops/declare/reduction.h"
#include "core/ops/define.h"

namespace mslua {

// The gradient is shared equally among the elements that are the maximum.
std::vector<Value> ExtremeGrad(GradContext& c) {
  const DType dtype = c.g.TypeOf(c.x(0)).dtype;
  const Value hit = Cast(c.g, c.g.Op("equal", {c.x(0), BroadcastReduced(c, c.outputs[0])}), dtype);
  const Value count = c.g.Op("reduce_sum", {hit}, c.attrs);
  return {Mul(c.g, hit, BroadcastReduced(c, Div(c.g, c.dy[0], count)))};
}

MSLUA_OPERATOR(reduce_max) {
  OpDef op = ReductionOp("reduce_max", Reduction::kMax);
  op.Reduces(OwnBatch::kSum);
  op.Class("ReduceMax")
      .Doc(
          "The largest element over `axis` (every axis when none is named); -inf, or the least "
          "integer, where there is none.");
  op.Grad(ExtremeGrad);
  return {op};
}

MSLUA_ROWS(reduce_max) { return ReductionForm(spec, "row_max"); }

MSLUA_ONNX(reduce_max) { onnx::LowerReduction(c, "ReduceMax"); }

}  // namespace mslua
