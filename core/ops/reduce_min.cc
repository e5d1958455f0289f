#include "core/onnx/lowering.h"
#include "core/ops/declare/reduction.h"
#include "core/ops/define.h"

namespace mslua {

std::vector<Value> ExtremeGrad(GradContext& c);  // reduce_max.cc

MSLUA_OPERATOR(reduce_min) {
  OpDef op = ReductionOp("reduce_min", Reduction::kMin);
  op.Reduces(OwnBatch::kSum);
  op.Class("ReduceMin")
      .Doc(
          "The smallest element over `axis` (every axis when none is named); inf, or the largest "
          "integer, where there is none.");
  op.Grad(ExtremeGrad);
  return {op};
}

MSLUA_ROWS(reduce_min) { return ReductionForm(spec, "row_min"); }

MSLUA_ONNX(reduce_min) { onnx::LowerReduction(c, "ReduceMin"); }

}  // namespace mslua
