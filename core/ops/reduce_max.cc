#include "core/onnx/lowering.h"
#include "core/ops/declare/reduction.h"
#include "core/ops/define.h"

namespace mslua {

// The gradient is shared equally among the elements that are the maximum.
std::vector<Value> ExtremeGrad(GradContext& c) {
  const DType own = c.g.TypeOf(c.x(0)).dtype, computed = ArithmeticType(own);
  const Value hit = Cast(c.g, c.g.Op("equal", {c.x(0), BroadcastReduced(c, c.outputs[0])}), computed);
  const Value count = c.g.Op("reduce_sum", {hit}, c.attrs);
  const Value share = Div(c.g, Cast(c.g, c.dy[0], computed), count);
  return {Cast(c.g, Mul(c.g, hit, BroadcastReduced(c, share)), own)};
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
