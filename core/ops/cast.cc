#include "core/ops/define.h"

namespace mslua {

MSLUA_OPERATOR(cast) {
  OpDef op = ElementwiseOp("cast", {"x"}, "x");
  op.Class("Cast").Doc(
      "x in another element type. Floats round to nearest even; to an integer they truncate towards 0; to bool, 0 is "
      "false.");
  op.AllTypes().Required("dtype", AttrKind::kDType, "the result's element type");
  op.Infer([](const Attrs& a, absl::Span<const TensorType> in) -> StatusOr<std::vector<TensorType>> {
    return std::vector<TensorType>{{a.Type("dtype"), in[0].shape}};
  });
  op.zero_gradient = false;
  op.Grad([](GradContext& c) -> std::vector<Value> { return {Cast(c.g, c.dy[0], c.g.TypeOf(c.x(0)).dtype)}; });
  op.AddSample({{{DType::kF32, {3, 5}}}, {{"dtype", DType::kF64}}});
  op.AddSample({{{DType::kF32, {3, 5}}}, {{"dtype", DType::kBF16}}});
  op.AddSample({{{DType::kF32, {3, 5}}}, {{"dtype", DType::kI32}}, -9, 9});
  return {op};
}

}  // namespace mslua
