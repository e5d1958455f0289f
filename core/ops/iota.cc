#include "absl/strings/str_cat.h"
#include "core/base/number.h"
#include "core/onnx/lowering.h"
#include "core/op/device_text.h"
#include "core/ops/define.h"

namespace mslua {

MSLUA_OPERATOR(iota) {
  OpDef op("iota");
  op.Class("Range").Doc("[start, start + step, ...] with `size` elements.");
  op.AllTypes().ZeroGrad();
  op.Required("size", AttrKind::kInt, "how many").Attr("dtype", AttrKind::kDType, DType::kI32, "the element type");
  op.Attr("start", AttrKind::kFloat, 0.0, "the first one").Attr("step", AttrKind::kFloat, 1.0, "from one to the next");
  op.Rule("-> n");
  op.Infer([](const Attrs& a, absl::Span<const TensorType>) -> StatusOr<std::vector<TensorType>> {
    if (a.Int("size") < 0)
      return absl::InvalidArgumentError(absl::StrCat("size is ", a.Int("size"), ", expected no negative number"));
    const double start = a.Float("start"), end = start + a.Float("step") * static_cast<double>(a.Int("size") - 1);
    if (a.Int("size") > 0) {
      for (const double number : {start, end}) RETURN_IF_ERROR(CheckHolds(a.Type("dtype"), number));
    }
    return std::vector<TensorType>{{a.Type("dtype"), {a.Int("size")}}};
  });
  op.Localize([](const LocalizeCall& c) -> StatusOr<Attrs> {
    Attrs attrs = c.attrs;
    attrs.Set("size", c.local_outputs[0].shape[0]);
    return attrs.Set("start",
                     c.attrs.Float("start") + c.attrs.Float("step") * static_cast<double>(c.output_begin[0][0]));
  });
  op.Reference([](const OpCall& c) {
    const TensorView& y = c.outputs[0];
    const double start = c.attrs.Float("start"), step = c.attrs.Float("step");
    for (int64_t i = 0; i < y.type.shape[0]; ++i)
      StoreDouble(y.type.dtype, y.data, i, start + step * static_cast<double>(i));
    return absl::OkStatus();
  });
  op.OnDevice([](const OpSpec& spec) {
    return OneStep(EachElement(spec.outputs[0].elements(),
                               absl::StrCat("  Set(y0[i], ", NumberText(spec.attrs.Float("start")), " + ",
                                            NumberText(spec.attrs.Float("step")), " * (double)i);")));
  });
  op.AddSample({{}, {{"size", int64_t{6}}}});
  op.AddSample({{}, {{"size", int64_t{6}}, {"dtype", DType::kF32}, {"start", 0.5}, {"step", -0.25}}});
  return {op};
}

MSLUA_ONNX(iota) {
  const onnx::Dim size = c.DimsOut(0, {"size"})[0];
  const DType type = c.attrs().Type("dtype");
  const std::string count = c.Op("Squeeze", {c.Shape({size})});
  const std::string steps = c.Op("Range", {c.Number(0, DType::kI64), count, c.Number(1, DType::kI64)});
  // In f64, as a product and a sum, so that each is rounded once.
  const auto number = [&](const char* name) { return c.Number(c.attrs().Float(name), DType::kF64); };
  const std::string scaled = c.Op("Mul", {c.Cast(steps, DType::kF64), number("step")});
  c.Result(c.Cast(c.Op("Add", {scaled, number("start")}), type));
}

}  // namespace mslua
