#include "core/ops/declare/optimizer.h"
#include "core/ops/define.h"

namespace mslua {

MSLUA_OPERATOR(apply_sgd) {
  OpDef op("apply_sgd");
  op.Doc("Gradient descent: new_param = param - lr * (grad + weight_decay * param).");
  DeclareUpdate(op, {}, {"lr", "weight_decay"});
  op.Body([](GraphBuilder& g, absl::Span<const Value> in, const Attrs& attrs) -> std::vector<Value> {
    UpdateOperands u(g, {"param", "grad", "lr", "weight_decay"}, in, attrs);
    return u.Results({u.Let("new_param", "param - lr * (grad + weight_decay * param)")});
  });
  op.AddSample({{{DType::kF32, {3, 5}}, {DType::kF32, {3, 5}}, {DType::kF32, {}}, {DType::kF32, {}}}, {}, 0.5, 1.5});
  return {op};
}

}  // namespace mslua
