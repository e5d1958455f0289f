#include "core/ops/define.h"

namespace mslua {
namespace {

OpDef QuestionOp(std::string name, std::string formula) {
  OpDef op = ElementwiseOp(std::move(name), {"x"}, std::move(formula));
  op.Infer([](const Attrs&, absl::Span<const TensorType> in) -> StatusOr<std::vector<TensorType>> {
    return std::vector<TensorType>{{DType::kBool, in[0].shape}};
  });
  op.AddSample({{{DType::kF32, {3, 5}}}});
  return op;
}

}  // namespace

// The logarithm of a finite number is below 710 in every type.
MSLUA_OPERATOR(isfinite) {
  OpDef finite = QuestionOp("isfinite", "less(log(1 + abs(x)), 1e4)"),
        infinite = QuestionOp("isinf", "greater(log(1 + abs(x)), 1e4)"), nan = QuestionOp("isnan", "not_equal(x, x)");
  finite.Class("IsFinite").Doc("Whether x is neither infinite nor NaN. The result is bool.");
  infinite.Class("IsInf").Doc("Whether x is infinite. The result is bool.");
  nan.Class("IsNan").Doc("Whether x is NaN. The result is bool.");
  return {finite, infinite, nan};
}

}  // namespace mslua
