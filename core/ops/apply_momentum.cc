#include "core/ops/declare/optimizer.h"
#include "core/ops/define.h"

namespace mslua {

MSLUA_OPERATOR(apply_momentum) {
  OpDef op("apply_momentum");
  op.Doc(
      "Gradient descent with momentum, as PyTorch's SGD without dampening and MindSpore's Momentum: g = grad + "
      "weight_decay * param; "
      "new_velocity = momentum * velocity + g; new_param = param - lr * new_velocity, or with nesterov (Sutskever et "
      "al., 2013) "
      "param - lr * (g + momentum * new_velocity). The velocity starts at 0.");
  DeclareUpdate(op, {"velocity"}, {"lr", "momentum", "weight_decay"});
  op.Attr("nesterov", AttrKind::kBool, false);
  op.Body([](GraphBuilder& g, absl::Span<const Value> in, const Attrs& attrs) -> std::vector<Value> {
    UpdateOperands u(g, {"param", "grad", "velocity", "lr", "momentum", "weight_decay"}, in, attrs);
    u.Let("grad", "grad + weight_decay * param");
    const Value velocity = u.Let("velocity", "momentum * velocity + grad");
    return u.Results(
        {u.Let("param", attrs.Bool("nesterov") ? "param - lr * (grad + momentum * velocity)" : "param - lr * velocity"),
         velocity});
  });
  op.AddSample({{{DType::kF32, {3, 5}},
                 {DType::kF32, {3, 5}},
                 {DType::kF32, {3, 5}},
                 {DType::kF32, {}},
                 {DType::kF32, {}},
                 {DType::kF32, {}}},
                {},
                0.5,
                1.5});
  op.AddSample({{{DType::kF32, {3, 5}},
                 {DType::kF32, {3, 5}},
                 {DType::kF32, {3, 5}},
                 {DType::kF32, {}},
                 {DType::kF32, {}},
                 {DType::kF32, {}}},
                {{"nesterov", true}},
                0.5,
                1.5});
  return {op};
}

}  // namespace mslua
