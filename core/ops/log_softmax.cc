#include "core/onnx/lowering.h"
#include "core/ops/declare/softmax.h"
#include "core/ops/define.h"

namespace mslua {
namespace {

std::vector<Value> Grad(GradContext& c) {
  const Value s = ReduceSum(c.g, c.dy[0], {c.attrs.Int("axis")}, true);
  return {EmitFormula(c.g, "dy - exp(y) * s", {{"y", c.outputs[0]}, {"s", s}, {"dy", c.dy[0]}})};
}

}  // namespace

MSLUA_OPERATOR(log_softmax) {
  OpDef op("log_softmax");
  op.Class("LogSoftmax").Doc("The logarithm of softmax(x) along `axis`: x minus the logarithm of the sum of exp(x).");
  DeclareSoftmax(op, true);
  op.Grad(Grad);
  return {op};
}

MSLUA_ROWS(log_softmax) { return SoftmaxForm(spec, "x - m - log(s)"); }

MSLUA_ONNX(log_softmax) { c.Result(c.Op("LogSoftmax", {c.In(0)}, {{"axis", c.attrs().Int("axis")}})); }

}  // namespace mslua
