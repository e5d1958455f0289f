#include "absl/strings/str_cat.h"
#include "core/ops/define.h"

namespace mslua {

// A composite: the last elements joined before the first ones.
MSLUA_OPERATOR(roll) {
  OpDef op("roll");
  op.Class("Roll").Doc(
      "x shifted along each of `axis` by as many places as `shift` says, towards the end; what leaves there comes in "
      "at the beginning.");
  op.Input("x").AllTypes();
  op.Required("shift", AttrKind::kInts, "places for each axis; negative ones shift towards the beginning")
      .Required("axis", AttrKind::kAxes, "the axes, as many as there are shifts");
  op.Check([](const Attrs& a, absl::Span<const TensorType>) -> Status {
    const size_t shifts = a.Ints("shift").size(), axes = a.Ints("axis").size();
    if (shifts == axes) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("shift has ", shifts, " numbers and axis ", axes, ", expected as many of both"));
  });
  op.Body([](GraphBuilder& g, absl::Span<const Value> in, const Attrs& attrs) -> std::vector<Value> {
    const auto &shifts = attrs.Ints("shift"), &axes = attrs.Ints("axis");
    Value x = in[0];
    const Shape shape = g.TypeOf(x).shape;
    for (size_t i = 0; i < axes.size(); ++i) {
      const int64_t n = shape[axes[i]];
      const int64_t shift = n == 0 ? 0 : (shifts[i] % n + n) % n;
      if (shift == 0) continue;
      std::vector<int64_t> begin(shape.size(), 0), end(shape.begin(), shape.end());
      std::vector<int64_t> second = begin, first_end = end;
      second[axes[i]] = first_end[axes[i]] = n - shift;
      const Value last = g.Op("strided_slice", {x}, {{"begin", second}, {"end", end}});
      const Value first = g.Op("strided_slice", {x}, {{"begin", begin}, {"end", first_end}});
      x = g.Op("concat", {last, first}, {{"axis", axes[i]}});
    }
    return {x};
  });
  using Ints = std::vector<int64_t>;
  op.AddSample({{{DType::kF32, {3, 5}}}, {{"shift", Ints{2}}, {"axis", Ints{1}}}});
  op.AddSample({{{DType::kF32, {3, 5}}}, {{"shift", Ints{-1, 7}}, {"axis", Ints{0, 1}}}});
  return {op};
}

}  // namespace mslua
