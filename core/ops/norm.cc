#include <cmath>

#include "absl/strings/str_cat.h"
#include "core/ops/declare/reduction.h"
#include "core/ops/define.h"

namespace mslua {

// A composite.
MSLUA_OPERATOR(norm) {
  OpDef op("norm");
  op.Class("LpNorm").Doc(
      "The p-norm over `axis` (every axis when none is named): the sum of abs(x) ^ p, to the power 1 / p. An infinite "
      "p gives the largest abs(x). Where x is 0 its gradient is 0.");
  op.Input("x");
  op.Attr("axis", AttrKind::kAxes, std::vector<int64_t>{}, "the axes to reduce; none: all")
      .Attr("p", AttrKind::kFloat, 2.0, "the order, above 0")
      .Attr("keep_dims", AttrKind::kBool, false, "reduced axes stay, with size 1");
  op.Check([](const Attrs& a, absl::Span<const TensorType>) -> Status {
    if (a.Float("p") > 0) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("p is ", a.Float("p"), ", expected a number above 0"));
  });
  op.Body([](GraphBuilder& g, absl::Span<const Value> in, const Attrs& attrs) -> std::vector<Value> {
    const DType own = g.TypeOf(in[0]).dtype, computed = ArithmeticType(own);
    const double p = attrs.Float("p");
    Attrs over;
    over.Set("axis", attrs.Ints("axis")).Set("keep_dims", attrs.Bool("keep_dims"));
    const Value x = Cast(g, in[0], computed);
    Value y;
    if (p == 2) {
      y = RootOfSum(g, g.Op("reduce_sum", {Mul(g, x, x)}, over), 0.5);
    } else if (std::isinf(p)) {
      y = g.Op("reduce_max", {g.Op("abs", {x})}, over);
    } else if (p == 1) {
      y = g.Op("reduce_sum", {g.Op("abs", {x})}, over);
    } else {
      const Value magnitude = g.Op("abs", {x}), order = g.Constant(p, computed), zero = g.Constant(0, computed);
      Value powers;
      if (p > 1) {
        powers = Elementwise(g, "pow", {magnitude, order});
      } else {  // the slope is infinite at 0
        const Value none = Elementwise(g, "equal", {magnitude, zero});
        const Value safe = Elementwise(g, "select", {none, g.Constant(1, computed), magnitude});
        powers = Elementwise(g, "select", {none, zero, Elementwise(g, "pow", {safe, order})});
      }
      y = RootOfSum(g, g.Op("reduce_sum", {powers}, over), 1 / p);
    }
    return {Cast(g, y, own)};
  });
  op.AddSample({{{DType::kF32, {3, 5}}}, {}, 0.5, 2});
  op.AddSample({{{DType::kF32, {2, 3, 5}}}, {{"axis", std::vector<int64_t>{1}}, {"p", 3.0}}, 0.5, 2});
  op.AddSample({{{DType::kF32, {3, 5}}}, {{"axis", std::vector<int64_t>{1}}, {"p", 1.0}, {"keep_dims", true}}, 0.5, 2});
  return {op};
}

}  // namespace mslua
