#include "absl/strings/str_cat.h"
#include "core/base/text.h"
#include "core/ops/define.h"

namespace mslua {

MSLUA_OPERATOR(expand_dims) {
  OpDef op("expand_dims");
  op.Class("ExpandDims").Doc("x with a new dimension of size 1 at `axis`.");
  op.Input("x").AllTypes().Required("axis", AttrKind::kInt,
                                    "where it stands; negative ones count from the end of the result");
  op.Check([](const Attrs& a, absl::Span<const TensorType> in) -> Status {
    const int64_t axis = a.Int("axis"), rank = in[0].rank() + 1;
    if (axis >= -rank && axis < rank) return absl::OkStatus();
    return absl::InvalidArgumentError(
        AxisOutOfRange("axis", axis, absl::StrCat("a result of ", Counted(rank, "dimension"))));
  });
  op.Body([](GraphBuilder& g, absl::Span<const Value> in, const Attrs& a) -> std::vector<Value> {
    Shape shape = g.TypeOf(in[0]).shape;
    const int64_t rank = static_cast<int64_t>(shape.size()) + 1;
    shape.insert(shape.begin() + (a.Int("axis") < 0 ? a.Int("axis") + rank : a.Int("axis")), 1);
    return {Reshape(g, in[0], shape)};
  });
  op.AddSample({{{DType::kF32, {3, 2}}}, {{"axis", int64_t{-1}}}});
  return {op};
}

}  // namespace mslua
