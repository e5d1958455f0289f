#include "core/base/number.h"
#include "core/ops/define.h"

namespace mslua {

// A composite: a select whose first choice is a number.
MSLUA_OPERATOR(masked_fill) {
  OpDef op("masked_fill");
  op.Class("MaskedFill").Doc("`value` where mask is true, and x elsewhere. The mask broadcasts to the shape of x.");
  op.Input("x").Input("mask", TypeClass::kBool).AllTypes();
  op.Required("value", AttrKind::kFloat, "what masked elements become");
  op.Check([](const Attrs& a, absl::Span<const TensorType> in) -> Status {
    RETURN_IF_ERROR(CheckNumber("value", in[0].dtype, a.Float("value")));
    const auto shape = BroadcastShape(in[0].shape, in[1].shape);
    if (shape.ok() && *shape == in[0].shape) return absl::OkStatus();
    return absl::InvalidArgumentError("the mask does not broadcast to the shape of x");
  });
  op.Body([](GraphBuilder& g, absl::Span<const Value> in, const Attrs& attrs) -> std::vector<Value> {
    const Value value = g.Constant(attrs.Float("value"), g.TypeOf(in[0]).dtype);
    return {Elementwise(g, "select", {in[1], value, in[0]})};
  });
  op.AddSample({{{DType::kF32, {3, 5}}, {DType::kBool, {3, 5}}}, {{"value", -2.0}}});
  op.AddSample({{{DType::kF32, {2, 3, 5}}, {DType::kBool, {3, 1}}}, {{"value", 0.5}}});
  return {op};
}

}  // namespace mslua
