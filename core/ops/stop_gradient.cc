#include <cstring>

#include "core/onnx/lowering.h"
#include "core/ops/define.h"

namespace mslua {

MSLUA_OPERATOR(stop_gradient) {
  OpDef op("stop_gradient");
  op.Class("StopGradient").Doc("x, for which the gradient is zero.");
  op.Input("x").AllTypes().Rule("*r -> *r").View().ZeroGrad();
  op.Reference([](const OpCall& c) {
    std::memcpy(c.outputs[0].data, c.inputs[0].data, static_cast<size_t>(c.outputs[0].type.bytes()));
    return absl::OkStatus();
  });
  op.AddSample({{{DType::kF32, {3, 5}}}});
  return {op};
}

MSLUA_ONNX(stop_gradient) { c.Result(c.In(0)); }

}  // namespace mslua
