#include "absl/strings/str_cat.h"
#include "core/base/text.h"
#include "core/ops/define.h"

namespace mslua {

MSLUA_OPERATOR(stack) {
  OpDef op("stack");
  op.Class("Stack").Doc("Tensors of one shape side by side along a new dimension at `axis`.");
  op.Variadic("x").AllTypes().Attr("axis", AttrKind::kInt, int64_t{0},
                                   "where the new dimension stands; negative ones count from the end of the result");
  op.Check([](const Attrs& a, absl::Span<const TensorType> in) -> Status {
    const int64_t axis = a.Int("axis"), rank = in[0].rank() + 1;
    if (axis < -rank || axis >= rank)
      return absl::InvalidArgumentError(
          AxisOutOfRange("axis", axis, absl::StrCat("a result of ", Counted(rank, "dimension"))));
    for (const TensorType& t : in) {
      if (t.shape != in[0].shape) return absl::InvalidArgumentError("shapes differ");
    }
    return absl::OkStatus();
  });
  op.Body([](GraphBuilder& g, absl::Span<const Value> in, const Attrs& a) -> std::vector<Value> {
    Shape shape = g.TypeOf(in[0]).shape;
    const int64_t rank = static_cast<int64_t>(shape.size()) + 1,
                  axis = a.Int("axis") < 0 ? a.Int("axis") + rank : a.Int("axis");
    shape.insert(shape.begin() + axis, 1);
    std::vector<Value> parts;
    for (Value v : in) parts.push_back(Reshape(g, v, shape));
    return {g.Op("concat", parts, {{"axis", axis}})};
  });
  op.AddSample({{{DType::kF32, {3, 2}}, {DType::kF32, {3, 2}}}, {{"axis", int64_t{1}}}});
  op.AddSample({{{DType::kF32, {0, 2}}, {DType::kF32, {0, 2}}}});
  return {op};
}

}  // namespace mslua
