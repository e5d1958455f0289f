#include "core/onnx/lowering.h"
#include "core/ops/declare/reduction.h"
#include "core/ops/define.h"

namespace mslua {

MSLUA_OPERATOR(reduce_sum) {
  OpDef op = ReductionOp("reduce_sum", Reduction::kSum);
  op.Computes(Precision::kWide).Reduces(OwnBatch::kSum);
  op.Class("ReduceSum")
      .Doc(
          "Sum over `axis` (every axis when none is named). 16-bit floats are added in f32. "
          "Integers keep their type and wrap round: cast uint8 to int32 first.");
  op.Grad([](GradContext& c) { return std::vector<Value>{BroadcastReduced(c, c.dy[0])}; });
  return {op};
}

MSLUA_ROWS(reduce_sum) { return ReductionForm(spec, "row_sum"); }

MSLUA_ONNX(reduce_sum) { onnx::LowerReduction(c, "ReduceSum"); }

}  // namespace mslua
