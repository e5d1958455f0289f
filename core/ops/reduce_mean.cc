#include <algorithm>

#include "core/ops/declare/reduction.h"
#include "core/ops/define.h"

namespace mslua {

// A composite: a sum scaled by the count of the whole tensor, which is fixed here, before any partitioning. The sum of
// 16-bit numbers stays in f32 until it is divided: 100 numbers of 1000 have a mean in f16, and no sum.
MSLUA_OPERATOR(reduce_mean) {
  OpDef op("reduce_mean");
  op.Reduces(OwnBatch::kMean);
  op.Class("ReduceMean").Doc("Mean over `axis` (every axis when none is named).");
  op.Input("x");
  op.Attr("axis", AttrKind::kAxes, std::vector<int64_t>{}, "the axes to reduce; none: all")
      .Attr("keep_dims", AttrKind::kBool, false, "reduced axes stay, with size 1");
  op.Body([](GraphBuilder& g, absl::Span<const Value> in, const Attrs& attrs) {
    const TensorType type = g.TypeOf(in[0]);
    const Value sum = g.Op("reduce_sum", {Cast(g, in[0], ArithmeticType(type.dtype))}, attrs);
    const double count =
        static_cast<double>(type.elements()) / static_cast<double>(std::max<int64_t>(1, g.TypeOf(sum).elements()));
    return std::vector<Value>{Cast(g, Mul(g, sum, 1.0 / count), type.dtype)};
  });
  op.AddSample({{{DType::kF32, {3, 5}}}});
  op.AddSample({{{DType::kF32, {2, 3, 5}}}, {{"axis", std::vector<int64_t>{0, 2}}, {"keep_dims", true}}});
  return {op};
}

}  // namespace mslua
