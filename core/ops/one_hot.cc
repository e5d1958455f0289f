#include <numeric>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/number.h"
#include "core/base/parallel_for.h"
#include "core/kernels/strided_copy.h"
#include "core/onnx/lowering.h"
#include "core/op/device_text.h"
#include "core/op/marks.h"
#include "core/ops/define.h"

namespace mslua {

// On a device that holds columns [_begin, _begin + depth) of the whole, `_begin` is set.
MSLUA_OPERATOR(one_hot) {
  OpDef op("one_hot");
  op.Class("OneHot").Doc(
      "indices [..] from 0 give [.., depth]: `on_value` at the index and `off_value` elsewhere; a row of `off_value` "
      "for an index outside [0, depth).");
  op.Input("indices", TypeClass::kIndex).ZeroGrad();
  op.Required("depth", AttrKind::kInt, "the number of classes");
  op.Attr("on_value", AttrKind::kFloat, 1.0, "the value at the index")
      .Attr("off_value", AttrKind::kFloat, 0.0, "the value elsewhere");
  op.Attr("dtype", AttrKind::kDType, DType::kF32, "the result's element type");
  op.Rule("*i -> *i d");
  op.Infer([](const Attrs& a, absl::Span<const TensorType> in) -> StatusOr<std::vector<TensorType>> {
    if (a.Int("depth") < 1)
      return absl::InvalidArgumentError(absl::StrCat("depth is ", a.Int("depth"), ", expected a positive number"));
    for (const char* name : {"on_value", "off_value"})
      RETURN_IF_ERROR(CheckNumber(name, a.Type("dtype"), a.Float(name)));
    TensorType y{a.Type("dtype"), in[0].shape};
    y.shape.push_back(a.Int("depth"));
    return std::vector<TensorType>{y};
  });
  op.Localize([](const LocalizeCall& c) -> StatusOr<Attrs> {
    Attrs attrs = c.attrs;
    return mark::kFirstRow.Set(attrs.Set("depth", c.local_outputs[0].shape.back()), c.output_begin[0].back());
  });
  op.Reference([](const OpCall& c) {
    const TensorView& y = c.outputs[0];
    const int64_t size = SizeOf(y.type.dtype), depth = c.attrs.Int("depth"), begin = mark::kFirstRow.GetOr(c.attrs, 0);
    char off[8];
    StoreDouble(y.type.dtype, off, 0, c.attrs.Float("off_value"));
    Fill(size, y.type.elements(), off, y.data);
    const bool wide = c.inputs[0].type.dtype == DType::kI64;
    for (int64_t i = 0; i < c.inputs[0].type.elements(); ++i) {
      const int64_t at = (wide ? c.inputs[0].as<int64_t>()[i] : c.inputs[0].as<int32_t>()[i]) - begin;
      if (at >= 0 && at < depth) StoreDouble(y.type.dtype, y.data, i * depth + at, c.attrs.Float("on_value"));
    }
    return absl::OkStatus();
  });
  op.OnDevice([](const OpSpec& spec) {
    const int64_t depth = spec.attrs.Int("depth");
    return OneStep(
        EachElement(spec.outputs[0].elements(),
                    absl::StrCat("  Set(y0[i], (i64)Get(x0[i / ", depth, "]) - ", mark::kFirstRow.GetOr(spec.attrs, 0),
                                 " == (i64)(i % ", depth, ") ? ", NumberText(spec.attrs.Float("on_value")), " : ",
                                 NumberText(spec.attrs.Float("off_value")), ");")));
  });
  op.AddSample({{{DType::kI32, {3, 2}}}, {{"depth", int64_t{6}}}});
  op.AddSample({{{DType::kI64, {5}}}, {{"depth", int64_t{4}}, {"on_value", 0.9}, {"off_value", 0.025}}});
  return {op};
}

MSLUA_ONNX(one_hot) {
  std::vector<int64_t> classes(static_cast<size_t>(c.attrs().Int("depth")));
  std::iota(classes.begin(), classes.end(), int64_t{0});
  const DType type = c.attrs().Type("dtype");
  const std::string index = c.Op("Unsqueeze", {c.Cast(c.In(0), DType::kI64), c.Ints({c.TypeIn().rank()})});
  const auto value = [&](const char* name) { return c.Number(c.attrs().Float(name), type); };
  c.Result(c.Op("Where", {c.Op("Equal", {index, c.Ints(classes)}), value("on_value"), value("off_value")}));
}

}  // namespace mslua
