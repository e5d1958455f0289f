#include <algorithm>

#include "absl/strings/str_cat.h"
#include "core/ops/declare/reduction.h"
#include "core/ops/define.h"

namespace mslua {
namespace {

OpDef SpreadOp(std::string name, bool root) {
  OpDef op(std::move(name));
  op.Input("x");
  op.Attr("axis", AttrKind::kAxes, std::vector<int64_t>{}, "the axes to reduce; none: all")
      .Attr("ddof", AttrKind::kInt, int64_t{0}, "what is taken from the number of elements before dividing by it")
      .Attr("keep_dims", AttrKind::kBool, false, "reduced axes stay, with size 1");
  op.Check([](const Attrs& a, absl::Span<const TensorType>) -> Status {
    if (a.Int("ddof") >= 0) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("ddof is ", a.Int("ddof"), ", expected no negative number"));
  });
  op.Body([root](GraphBuilder& g, absl::Span<const Value> in, const Attrs& attrs) -> std::vector<Value> {
    const TensorType type = g.TypeOf(in[0]);
    const Value x = Cast(g, in[0], ArithmeticType(type.dtype));
    const bool keep_dims = attrs.Bool("keep_dims");
    const auto& axes = attrs.Ints("axis");
    Attrs of_mean;
    of_mean.Set("axis", axes).Set("keep_dims", true);
    const auto centred = [&](Value v) {
      return Sub(g, v, BroadcastTo(g, g.Op("reduce_mean", {v}, of_mean), type.shape));
    };
    // Twice: the mean of numbers far above their differences is rounded to more than those.
    const Value from_mean = centred(centred(x));
    of_mean.Set("keep_dims", keep_dims);
    const Value sum = g.Op("reduce_sum", {Mul(g, from_mean, from_mean)}, of_mean);
    const int64_t count = type.elements() / std::max<int64_t>(1, g.TypeOf(sum).elements());
    Value y = Mul(g, sum, 1.0 / static_cast<double>(std::max<int64_t>(0, count - attrs.Int("ddof"))));
    if (root) y = RootOfSum(g, y, 0.5);
    return {Cast(g, y, type.dtype)};
  });
  op.AddSample({{{DType::kF32, {3, 5}}}});
  op.AddSample(
      {{{DType::kF32, {2, 3, 5}}}, {{"axis", std::vector<int64_t>{0, 2}}, {"ddof", int64_t{1}}, {"keep_dims", true}}});
  return op;
}

}  // namespace

// Composites, computed from the differences to the mean: sums of squares would lose digits.
MSLUA_OPERATOR(var) {
  OpDef var = SpreadOp("var", false), deviation = SpreadOp("std", true);
  var.Doc("The variance over `axis`: the mean square difference to the mean. ddof = 1 is the unbiased estimate.");
  deviation.Doc("The standard deviation over `axis`: the square root of ops.var. Its gradient at 0 is 0.");
  return {var, deviation};
}

}  // namespace mslua
