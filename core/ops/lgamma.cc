#include "core/ops/define.h"

namespace mslua {

namespace {

// dy times the derivative of order n of digamma.
std::vector<Value> PolygammaTimes(GradContext& c, Value x, Value n) {
  return {Mul(c.g, c.dy[0], Elementwise(c.g, "polygamma", {n, x}))};
}

}  // namespace

MSLUA_OPERATOR(lgamma) {
  OpDef lgamma = ElementwiseOp("lgamma", {"x"}, "lgamma(x)");
  lgamma.Class("Lgamma").Doc(
      "log(abs(gamma(x))), the logarithm of the factorial of x - 1; infinite at 0, -1, -2 and so on.");
  OpDef digamma = ElementwiseOp("digamma", {"x"}, "polygamma(0, x)");
  digamma.Class("Digamma").Doc("The derivative of lgamma; NaN at -1, -2 and so on.");
  OpDef polygamma = ElementwiseOp("polygamma", {"n", "x"}, "polygamma(n, x)");
  polygamma.inputs[0].type = TypeClass::kIndex;
  polygamma.Class("Polygamma")
      .Doc("The derivative of order n of digamma; n has integers from 0, NaN stands for others.");
  for (OpDef* op : {&lgamma, &digamma, &polygamma}) op->Computes(Precision::kWide).zero_gradient = false;
  lgamma.Grad([](GradContext& c) { return PolygammaTimes(c, c.x(0), c.g.Constant(0, DType::kI32)); });
  digamma.Grad([](GradContext& c) { return PolygammaTimes(c, c.x(0), c.g.Constant(1, DType::kI32)); });
  polygamma.Grad([](GradContext& c) -> std::vector<Value> {
    const Value next = Add(c.g, c.x(0), c.g.Constant(1, c.g.TypeOf(c.x(0)).dtype));
    return {Value(), PolygammaTimes(c, c.x(1), next)[0]};
  });
  for (OpDef* op : {&lgamma, &digamma}) {
    op->AddSample({{{DType::kF32, {3, 5}}}, {}, 0.5, 4});
    op->AddSample({{{DType::kF32, {3, 5}}}, {}, -1.9, -1.1});
  }
  polygamma.AddSample({{{DType::kI32, {3, 5}}, {DType::kF32, {3, 5}}}, {}, 0.5, 4});
  polygamma.AddSample({{{DType::kI64, {3, 5}}, {DType::kF32, {3, 5}}}, {}, -1.9, -1.1});
  return {lgamma, digamma, polygamma};
}

}  // namespace mslua
