#include "core/ops/declare/softmax.h"

#include "core/onnx/lowering.h"
#include "core/ops/define.h"

namespace mslua {
namespace {

std::vector<Value> Grad(GradContext& c) {
  const Value s = ReduceSum(c.g, Mul(c.g, c.outputs[0], c.dy[0]), {c.attrs.Int("axis")}, true);
  return {EmitFormula(c.g, "y * (dy - s)", {{"y", c.outputs[0]}, {"s", s}, {"dy", c.dy[0]}})};
}

}  // namespace

MSLUA_OPERATOR(softmax) {
  OpDef op("softmax");
  op.Class("Softmax").Doc(
      "exp(x) divided by its sum along `axis`; computed from x minus the maximum, so that nothing overflows.");
  DeclareSoftmax(op, false);
  op.Grad(Grad);
  return {op};
}

MSLUA_ROWS(softmax) { return SoftmaxForm(spec, "e / s"); }

MSLUA_ONNX(softmax) { c.Result(c.Op("Softmax", {c.In(0)}, {{"axis", c.attrs().Int("axis")}})); }

}  // namespace mslua
