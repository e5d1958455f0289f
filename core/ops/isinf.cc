#include "core/ops/define.h"

namespace mslua {

// The logarithm of a finite number is below 710 in every type.
MSLUA_OPERATOR(isinf) {
  OpDef op = ElementwiseOp("isinf", {"x"}, "greater(log(1 + abs(x)), 1e4)");
  op.Class("IsInf").Doc("Whether x is infinite. The result is bool.");
  op.Infer([](const Attrs&, absl::Span<const TensorType> in) -> StatusOr<std::vector<TensorType>> {
    return std::vector<TensorType>{{DType::kBool, in[0].shape}};
  });
  op.AddSample({{{DType::kF32, {3, 5}}}});
  return {op};
}

}  // namespace mslua
