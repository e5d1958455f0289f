#include "core/onnx/lowering.h"
#include "core/ops/declare/reduction.h"
#include "core/ops/define.h"

namespace mslua {
namespace {

// The product of the other elements: that of all that are not 0, divided by this one where it is not 0; 0 where another
// element is 0.
std::vector<Value> ProductGrad(GradContext& c) {
  const DType own = c.g.TypeOf(c.x(0)).dtype, computed = ArithmeticType(own);
  const Value x = Cast(c.g, c.x(0), computed), zero = c.g.Constant(0, computed);
  const Value is_zero = Elementwise(c.g, "equal", {x, zero});
  const Value factor = Elementwise(c.g, "select", {is_zero, c.g.Constant(1, computed), x});
  // Of the other elements: how many are zero, and, where one is, that one, so that derivatives reach it.
  const auto others_of = [&](Value each) {
    return Sub(c.g, BroadcastReduced(c, c.g.Op("reduce_sum", {each}, c.attrs)), each);
  };
  const Value others = others_of(Cast(c.g, is_zero, DType::kF32));
  const Value other = others_of(Elementwise(c.g, "select", {is_zero, x, zero}));
  const Value product = Mul(c.g, Cast(c.g, c.dy[0], computed), c.g.Op("reduce_prod", {factor}, c.attrs));
  const Value quotient = Div(c.g, BroadcastReduced(c, product), factor);
  const Value none = Elementwise(c.g, "equal", {others, c.g.Constant(0, DType::kF32)});
  const Value one = Elementwise(c.g, "equal", {others, c.g.Constant(1, DType::kF32)});
  const Value rest = Elementwise(c.g, "select", {one, Mul(c.g, quotient, other), zero});
  return {Cast(c.g, Elementwise(c.g, "select", {none, quotient, rest}), own)};
}

}  // namespace

MSLUA_OPERATOR(reduce_prod) {
  OpDef op = ReductionOp("reduce_prod", Reduction::kProd);
  op.Computes(Precision::kWide);
  op.Class("ReduceProd")
      .Doc(
          "Product over `axis` (every axis when none is named). Integers keep their type "
          "and wrap round.");
  op.Grad(ProductGrad);
  return {op};
}

MSLUA_ONNX(reduce_prod) { onnx::LowerReduction(c, "ReduceProd"); }

}  // namespace mslua
