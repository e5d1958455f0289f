#include "absl/strings/str_cat.h"
#include "core/ops/define.h"

namespace mslua {
namespace {

// The normal distribution function.
constexpr char kPhi[] = "0.5 + 0.5 * erf(x * 0.7071067811865476)";

// 16 bits have the slope computed in f32: its numbers are not rounded, and its erf is the one of the forward formula.
std::vector<Value> GeluErfGrad(GradContext& c) {
  const DType t = c.g.TypeOf(c.x(0)).dtype;
  const Value x = SizeOf(t) == 2 ? Cast(c.g, c.x(0), DType::kF32) : c.x(0);
  const Value slope =
      EmitFormula(c.g, absl::StrCat("x * exp(-0.5 * x * x - 0.9189385332046727) + (", kPhi, ")"), {{"x", x}}, Attrs());
  return {Mul(c.g, c.dy[0], Cast(c.g, slope, t))};
}

// x times the normal distribution function at x.
OpDef GeluErf() {
  OpDef op = ElementwiseOp("gelu_erf", {"x"}, absl::StrCat("x * (", kPhi, ")"), {""});
  op.Grad(GeluErfGrad);
  op.Doc("x times the normal distribution function at x.");
  op.AddSample({{{DType::kF32, {3, 5}}}, {}, -3, 3});
  return op;
}

OpDef GeluTanh() {
  const std::string t = "tanh(0.7978845608028654 * x * (1 + 0.044715 * x * x))";
  OpDef op = ElementwiseOp("gelu_tanh", {"x"}, absl::StrCat("0.5 * x * (1 + ", t, ")"),
                           {absl::StrCat("dy * 0.5 * (1 + ", t, " + x * (1 - ", t, " * ", t,
                                         ") * 0.7978845608028654 * (1 + 0.134145 * x * x))")});
  op.Doc("gelu with the normal distribution function approximated by a hyperbolic tangent.");
  op.AddSample({{{DType::kF32, {3, 5}}}, {}, -3, 3});
  return op;
}

}  // namespace

// Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016: both forms.
MSLUA_OPERATOR(gelu) {
  OpDef op("gelu");
  op.Class("GeLU").Doc("x times the normal distribution function at x; `approximate`: its approximation by tanh.");
  op.Input("x").Attr("approximate", AttrKind::kBool, false, "the tanh formula");
  op.Body([](GraphBuilder& g, absl::Span<const Value> in, const Attrs& a) -> std::vector<Value> {
    return {g.Op(a.Bool("approximate") ? "gelu_tanh" : "gelu_erf", in)};
  });
  op.AddSample({{{DType::kF32, {3, 5}}}, {}, -3, 3});
  return {op, GeluErf(), GeluTanh()};
}

}  // namespace mslua
