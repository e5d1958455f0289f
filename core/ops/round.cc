#include "absl/strings/str_cat.h"
#include "core/ops/define.h"

namespace mslua {
namespace {

// x - floor(x) is exact, x + 0.5 is not.
constexpr char kNearest[] =
    "floor(x) + select(logical_or(greater(x - floor(x), 0.5), logical_and(equal(x - floor(x), 0.5), "
    "not_equal(floor(x) - 2 * floor(floor(x) / 2), 0))), 1, 0)";

}  // namespace

MSLUA_OPERATOR(round) {
  // 0 keeps the sign of x.
  OpDef op = ElementwiseOp("round", {"x"}, absl::StrCat("select(equal(", kNearest, ", 0), 0 * x, ", kNearest, ")"));
  op.Class("Round").Doc("The whole number nearest to x; the even one where two are equally near, and -0 for -0.5.");
  op.AddSample({{{DType::kF32, {3, 5}}}, {}, -3, 3});
  return {op};
}

}  // namespace mslua
