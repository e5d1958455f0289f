#include "core/onnx/lowering.h"
#include "core/ops/declare/reduction.h"
#include "core/ops/define.h"

namespace mslua {

MSLUA_OPERATOR(reduce_prod) {
  OpDef op = ReductionOp("reduce_prod", Reduction::kProd);
  op.Computes(Precision::kWide);
  op.Class("ReduceProd")
      .Doc("Product over `axis` (every axis when none is named). The gradient divides by x: NaN where x is 0.");
  op.Grad([](GradContext& c) {
    return std::vector<Value>{Div(c.g, BroadcastReduced(c, Mul(c.g, c.dy[0], c.outputs[0])), c.x(0))};
  });
  return {op};
}

MSLUA_ONNX(reduce_prod) { onnx::LowerReduction(c, "ReduceProd"); }

}  // namespace mslua
