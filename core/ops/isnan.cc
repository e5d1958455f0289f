#include "core/ops/define.h"

namespace mslua {

MSLUA_OPERATOR(isnan) {
  OpDef op = ElementwiseOp("isnan", {"x"}, "not_equal(x, x)");
  op.Class("IsNan").Doc("Whether x is NaN. The result is bool.");
  op.Infer([](const Attrs&, absl::Span<const TensorType> in) -> StatusOr<std::vector<TensorType>> {
    return std::vector<TensorType>{{DType::kBool, in[0].shape}};
  });
  op.AddSample({{{DType::kF32, {3, 5}}}});
  return {op};
}

}  // namespace mslua
